// A model of two parameters and one table, whose checkpoints take no time.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/support/temp_folder.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/optim/dense_optimizer.h"

namespace tandem::checkpoint {

inline TableSpec Spec() {
  TableSpec spec;
  spec.set_name("item");
  spec.set_number(1);
  spec.set_dim(3);
  spec.set_optimizer(SPARSE_ADAM);
  spec.set_beta1(0.9f);
  spec.set_beta2(0.999f);
  spec.set_epsilon(1e-8f);
  spec.set_init_stddev(0.1f);
  spec.set_seed(5);
  return spec;
}

inline Job SmallJob() {
  Job job;
  job.set_name("small");
  job.mutable_model()->mutable_sequence_rec()->set_layers(2);
  job.mutable_optimizer()->set_kind(ADAM);
  Table* table = job.add_tables();
  table->set_name("item");
  table->set_dim(3);
  return job;
}

// Trains and saves a model of two parameters and one table.
class SmallRun {
 public:
  explicit SmallRun(int num_workers = 2, uint64_t seed = 1, optim::Kind kind = optim::Kind::ADAM)
      : host_(num_workers), parameters_(seed, DType::F32) {
    parameters_.Normal("layer.weight", Shape{4, 3}, 1);
    parameters_.Constant("layer.bias", Shape{3}, 0.5);
    optimizer_ =
        std::make_unique<optim::DenseOptimizer>(optim::DenseOptions{.kind = kind}, &parameters_);
    EXPECT_TRUE(client_.CreateTables({Spec()}, absl::Seconds(30)).ok());
  }

  // Runs one step, dense and sparse. Gradients are functions of the step.
  void Train(uint64_t step) {
    for (const auto& parameter : parameters_.all()) {
      Tensor gradient = Tensor::Empty(parameter->shape(), DType::F32);
      for (int64_t i = 0; i < gradient.num_elements(); ++i)
        gradient.Set(i, static_cast<double>(step) - 0.1 * i);
      LeafNode& leaf = parameter->variable.leaf();
      leaf.ClearGradient();
      leaf.PlaceGradient(gradient);
      leaf.AcceptStorage();
    }
    ThreadPool pool(1);
    Stream stream(&pool);
    optimizer_->Update(step, 0.1, 1, stream);
    std::vector<uint64_t> ids{1000 + step};
    for (uint64_t id = 1; id <= 20; ++id) ids.push_back(id);
    const std::vector<float> gradients(3 * ids.size(), 0.5f * static_cast<float>(step));
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    ASSERT_TRUE(client_.Push(step, 0, {{1, ids, gradients.data()}}).Wait(deadline).ok());
    ASSERT_TRUE(client_.Commit({step, {{1, 0.1f}}, 1, false}).Wait(deadline).ok());
  }

  // `best_step`: the best step that the run knows at that time.
  absl::Status Write(const std::string& folder, uint64_t step, int keep = 1,
                     uint64_t best_step = 0) {
    const optim::DenseState state = optimizer_->State();
    WriteArgs args{.folder = folder,
                   .manifest = {},
                   .state = &state,
                   .tables = &client_,
                   .keep = keep,
                   .deadline = absl::Now() + absl::Seconds(30)};
    *args.manifest.mutable_job() = SmallJob();
    args.manifest.set_step(step);
    args.manifest.set_samples_consumed(100 * step);
    args.manifest.set_best_selection(1.0 / 3);
    args.manifest.set_best_step(best_step);
    *args.manifest.add_tables() = Spec();
    return WriteCheckpoint(args);
  }

  // The run's params_hash.
  absl::uint128 Hash() {
    return optimizer_->State().Hash() +
           client_.Hash().Wait(absl::Now() + absl::Seconds(30)).value().hash;
  }

  ParameterSet& parameters() { return parameters_; }
  optim::DenseOptimizer& optimizer() { return *optimizer_; }
  ps::TableAdmin& tables() { return client_; }

 private:
  ps::TableHost host_;
  ps::LocalClient client_{host_, 0, 1};
  ParameterSet parameters_;
  std::unique_ptr<optim::DenseOptimizer> optimizer_;
};

// A run and a folder for its checkpoints.
class CheckpointTest : public testing::Test {
 protected:
  void Train(uint64_t step) { run_.Train(step); }
  absl::Status Write(uint64_t step, int keep = 1, uint64_t best_step = 0) {
    return run_.Write(folder_.path(), step, keep, best_step);
  }
  // Trains steps 1 .. `steps`, then writes a checkpoint.
  void TrainAndWrite(uint64_t steps) {
    for (uint64_t step = 1; step <= steps; ++step) Train(step);
    const absl::Status written = Write(steps);
    ASSERT_TRUE(written.ok()) << written;
  }

  std::vector<std::string> Names(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string Step1() const { return folder_ / "step-00000001"; }

  const support::TempFolder folder_;
  SmallRun run_;
};

}  // namespace tandem::checkpoint
