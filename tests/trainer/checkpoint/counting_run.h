// A run whose state after step s is the number s everywhere: 12 MB of dense values and optimizer
// slots, and rows of one table.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/local/local_client.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"
#include "trainer/optim/dense_optimizer.h"

namespace tandem::checkpoint {

class CountingRun {
 public:
  static constexpr int kKeep = 2;

  CountingRun()
      : weight_(parameters_.Constant("weight", Shape{1000, 1000}, 0)),
        optimizer_({}, &parameters_) {
    for (uint64_t id = 1; id <= 500; ++id) ids_.push_back(id);
    TANDEM_CHECK(client_.CreateTables({Spec()}, absl::Seconds(20)).ok());
  }

  absl::Status Train(uint64_t step) {
    for (const Tensor& tensor : Tensors())
      std::fill_n(tensor.data<float>(), tensor.num_elements(), static_cast<float>(step));
    const std::vector<float> gradients(ids_.size(), -1);
    RETURN_IF_ERROR(client_.Push(step, 0, {{1, ids_, gradients.data()}}).Wait(Deadline()).status());
    return client_.Commit({step, {{1, 1.0f}}, 1, false}).Wait(Deadline()).status();
  }

  absl::Status Write(const std::string& folder, uint64_t step, uint64_t best_step) {
    const optim::DenseState state = optimizer_.State();
    WriteArgs args{.folder = folder,
                   .manifest = {},
                   .state = &state,
                   .tables = &client_,
                   .keep = kKeep,
                   .deadline = Deadline()};
    args.manifest.set_step(step);
    args.manifest.set_best_step(best_step);
    *args.manifest.add_tables() = Spec();
    return WriteCheckpoint(args);
  }

  // Loads a checkpoint and checks that all its parts come from one step.
  absl::StatusOr<CheckpointManifest> Restore(const std::string& folder, Choice choice) {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(folder, choice));
    RETURN_IF_ERROR(LoadState(checkpoint, optimizer_.State()));
    RETURN_IF_ERROR(LoadRows(checkpoint, client_, Deadline()));
    const float step = static_cast<float>(checkpoint.manifest.step());
    std::vector<float> rows(ids_.size());
    RETURN_IF_ERROR(client_.Pull(0, false, {{1, ids_, rows.data()}}).Wait(Deadline()).status());
    bool same = std::all_of(rows.begin(), rows.end(), [step](float x) { return x == step; });
    for (const Tensor& tensor : Tensors()) {
      const float* values = tensor.data<float>();
      same &= std::all_of(values, values + tensor.num_elements(),
                          [step](float x) { return x == step; });
    }
    if (!same)
      return absl::InternalError(absl::StrCat(checkpoint.folder, " has values of several steps"));
    return checkpoint.manifest;
  }

 private:
  static absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }
  static TableSpec Spec() {
    TableSpec spec;
    spec.set_name("count");
    spec.set_number(1);
    spec.set_dim(1);
    spec.set_optimizer(SPARSE_SGD);
    return spec;
  }
  std::vector<Tensor> Tensors() const {
    return {weight_.value(), optimizer_.slots(0)[0], optimizer_.slots(0)[1]};
  }

  ps::TableHost host_{2};
  ps::LocalClient client_{host_, 0, 1};
  ParameterSet parameters_{1, DType::F32};
  const Variable weight_;
  optim::DenseOptimizer optimizer_;
  std::vector<uint64_t> ids_;
};

}  // namespace tandem::checkpoint
