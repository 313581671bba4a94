// A GPT cut into stages gives the losses and gradients of the whole one, under every schedule.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "kernels/elementwise.h"
#include "kernels/memory/block_cache.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/models/gpt.h"
#include "trainer/parallel/pipeline/graph_stages.h"
#include "trainer/parallel/pipeline/verifier.h"

namespace tandem {
namespace {

using models::Gpt;
using models::GptInput;
using models::GptOptions;
using parallel::PipelineSchedule;
using parallel::Recompute;
using parallel::ScheduleKind;
using Gradients = std::map<std::string, std::vector<double>>;

constexpr int64_t kSymbols = 7, kLength = 6, kDim = 8, kLayers = 8;

GptOptions Small(bool tied) {
  return {.vocabulary_size = kSymbols,
          .max_length = kLength,
          .layers = kLayers,
          .heads = 2,
          .dim = kDim,
          .ffn_dim = 12,
          .dropout = 0.2f,
          .tied_embeddings = tied,
          .init_stddev = 0.4};
}

// Errors of a pipeline that nobody would notice in the loss.
enum class Fault { NONE, LATE_GRADIENT, WEIGHTS_LEFT_OUT, DROPOUT_BY_MICROBATCH, MEAN_LOSS };

// Microbatch m has m % 3 + 1 windows, which stand at their own places of the global batch.
GptInput InputOf(int microbatch, Fault fault = Fault::NONE) {
  const int64_t first = fault == Fault::DROPOUT_BY_MICROBATCH ? 0 : microbatch * 3;
  std::vector<int64_t> offsets{0}, positions, row_index, inputs, targets;
  for (int64_t w = 0; w < microbatch % 3 + 1; ++w) {
    for (int64_t i = 0; i < kLength; ++i) {
      positions.push_back(i);
      row_index.push_back((first + w) * kLength + i);
      inputs.push_back((i * 3 + w * 2 + microbatch) % kSymbols);
      targets.push_back((i * 5 + microbatch) % kSymbols);
    }
    offsets.push_back(offsets.back() + kLength);
  }
  return {.rows = {.offsets = Tensor::FromVector(offsets),
                   .positions = Tensor::FromVector(positions),
                   .row_index = Tensor::FromVector(row_index),
                   .max_length = kLength},
          .inputs = Tensor::FromVector(inputs),
          .targets = Tensor::FromVector(targets)};
}

void AddGradients(const ParameterSet& parameters, Gradients& sums) {
  for (const auto& parameter : parameters.all()) {
    const LeafNode& leaf = parameter->variable.leaf();
    std::vector<double>& sum = sums[parameter->name];
    sum.resize(static_cast<size_t>(leaf.shape().num_elements()));
    for (size_t i = 0; leaf.has_gradient() && i < sum.size(); ++i)
      sum[i] += leaf.gradient().At(static_cast<int64_t>(i));
  }
}

struct Result {
  std::vector<double> losses;  // by microbatch
  Gradients gradients;
};

Result Whole(bool tied, int num_microbatches) {
  testing::StepFixture fixture;
  ParameterSet parameters(17, DType::F64);
  const Gpt model(Small(tied), parameters);
  Context context(fixture.Options());
  Result result;
  for (int m = 0; m < num_microbatches; ++m) {
    const Variable loss = model.LossSum(context, Variable(), InputOf(m));
    Backward(context, loss);
    result.losses.push_back(loss.value().At(0));
  }
  AddGradients(parameters, result.gradients);
  return result;
}

// A chunk of blocks at each stage.
class GptStages : public parallel::StageModel {
 public:
  GptStages(const PipelineSchedule& schedule, int rank, bool tied, Fault fault,
            ParameterSet& parameters)
      : fault_(fault) {
    for (int chunk = 0; chunk < schedule.num_chunks; ++chunk) {
      const int64_t stage = schedule.StageOf(rank, chunk), stages = schedule.num_stages();
      GptOptions options = Small(tied);
      options.blocks = IndexRange{stage * kLayers / stages, (stage + 1) * kLayers / stages};
      chunks_.emplace_back(options, parameters);
    }
  }
  parallel::ArrayType RowsOf(int microbatch) const override {
    return {Shape{(microbatch % 3 + 1) * kLength, kDim}, DType::F64};
  }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return chunks_[chunk].StageRows(context, Variable(), before, InputOf(microbatch, fault_));
  }
  Variable Loss(Context& context, int microbatch, const Variable& rows) override {
    const Variable loss =
        chunks_.back().LossSum(context, Variable(), rows, InputOf(microbatch).targets);
    // Two windows are the mean number.
    return fault_ == Fault::MEAN_LOSS ? ops::Scale(context, loss, 2.0 / (microbatch % 3 + 1))
                                      : loss;
  }

 private:
  const Fault fault_;
  std::vector<Gpt> chunks_;
};

// The product's stages, but for a fault.
class FaultyStages : public parallel::StageRunner {
 public:
  FaultyStages(parallel::GraphStages* stages, Fault fault, int num_microbatches)
      : stages_(*stages), fault_(fault), num_microbatches_(num_microbatches) {}

  parallel::StageArrays ForInput(int chunk, int microbatch) override {
    return stages_.ForInput(chunk, microbatch);
  }
  parallel::StageArrays ForOutputGradient(int chunk, int microbatch) override {
    return stages_.ForOutputGradient(chunk, microbatch);
  }
  absl::StatusOr<parallel::StageArrays> Forward(int chunk, int microbatch,
                                                parallel::StageArrays input) override {
    return stages_.Forward(chunk, microbatch, std::move(input));
  }
  absl::StatusOr<parallel::StageArrays> Backward(int chunk, int microbatch,
                                                 parallel::StageArrays gradient,
                                                 bool weights) override {
    auto before = stages_.Backward(chunk, microbatch, std::move(gradient), weights);
    if (fault_ != Fault::LATE_GRADIENT || !before.ok() || before->empty()) return before;
    // The gradient of the last microbatch of the same size goes in its place.
    std::swap(sent_[microbatch % 3], *before);
    return before->empty() ? sent_[microbatch % 3] : *before;
  }
  absl::Status BackwardWeight(int chunk, int microbatch) override {
    const bool left_out = fault_ == Fault::WEIGHTS_LEFT_OUT && microbatch + 1 == num_microbatches_;
    return left_out ? absl::OkStatus() : stages_.BackwardWeight(chunk, microbatch);
  }

 private:
  parallel::GraphStages& stages_;
  const Fault fault_;
  const int num_microbatches_;
  parallel::StageArrays sent_[3];
};

Result InStages(const PipelineSchedule& schedule, bool tied, Recompute recompute,
                Fault fault = Fault::NONE) {
  const auto report = parallel::VerifySchedule(schedule);
  EXPECT_TRUE(report.ok()) << report.status();
  auto groups = comm::ThreadGroup::Create(schedule.num_ranks(), "pp", absl::Seconds(60),
                                          comm::ThreadGroup::Sending::WAITS_FOR_RECV);
  Result result;
  result.losses.resize(static_cast<size_t>(schedule.num_microbatches));
  absl::Mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      testing::StepFixture fixture;
      auto edges = parallel::MakeEdges(*groups[rank], schedule.num_chunks > 1,
                                       absl::Now() + absl::Seconds(20));
      ASSERT_TRUE(edges.ok()) << edges.status();
      ParameterSet parameters(17, DType::F64);
      GptStages model(schedule, rank, tied, fault, parameters);
      std::map<std::string, int> told;  // how often a parameter's gradient of a pass was complete
      for (const auto& parameter : parameters.all())
        parameter->variable.leaf().set_hook(
            [&, name = parameter->name](Context&) { ++told[name]; });
      Context context(fixture.Options());
      parallel::GraphStages stages(schedule, rank, recompute, &model, &context);
      parallel::PipelineExecutor executor(schedule, rank, &*edges, &fixture.stream(), nullptr);
      FaultyStages runner(&stages, fault, schedule.num_microbatches);
      const absl::Status status = executor.Run(runner, context.deadline());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(stages.peak_live(), report->peak_live[rank] * schedule.num_chunks);
      for (const auto& parameter : parameters.all()) {
        if (fault == Fault::NONE) {
          EXPECT_EQ(told[parameter->name], schedule.num_microbatches) << parameter->name;
        }
        parameter->variable.leaf().set_hook(nullptr);
      }
      absl::MutexLock lock(&mutex);
      AddGradients(parameters, result.gradients);
      for (int m = 0; m < schedule.num_microbatches; ++m) {
        if (stages.losses()[m].defined()) result.losses[m] = stages.losses()[m].At(0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

double Difference(const Gradients& a, const Gradients& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    for (size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst,
                       std::abs(values[i] - other->second[i]) / std::max(1.0, std::abs(values[i])));
  }
  return worst;
}

TEST(GptStagesTest, EveryScheduleGivesTheLossesAndGradientsOfTheWholeModel) {
  for (const bool tied : {false, true}) {
    for (const int num_microbatches : {1, 3, 6}) {
      const Result whole = Whole(tied, num_microbatches);
      for (const ScheduleKind kind : parallel::kScheduleKinds) {
        for (const int ranks : {1, 2, 4}) {
          for (const Recompute recompute : {Recompute::NONE, Recompute::FULL}) {
            const int chunks = kind == ScheduleKind::INTERLEAVED && ranks > 1 ? 2 : 1;
            const PipelineSchedule schedule =
                parallel::MakeSchedule({kind, ranks, chunks, num_microbatches});
            const Result stages = InStages(schedule, tied, recompute);
            const std::string what =
                absl::StrCat(NameOf(kind), " ", ranks, " ranks, ", num_microbatches,
                             tied ? " tied" : "", recompute == Recompute::FULL ? " FULL" : "");
            for (int m = 0; m < num_microbatches; ++m)
              EXPECT_NEAR(stages.losses[m], whole.losses[m], 1e-10) << what;
            EXPECT_LT(Difference(whole.gradients, stages.gradients), 1e-10) << what;
          }
        }
      }
    }
  }
}

// The memory that a forward pass of a stage in the middle leaves in use.
size_t BytesKept(Recompute recompute) {
  const PipelineSchedule schedule = parallel::MakeSchedule({ScheduleKind::GPIPE, 4, 1, 6});
  testing::StepFixture fixture;
  ParameterSet parameters(17, DType::F64);
  GptStages model(schedule, /*rank=*/1, /*tied=*/false, Fault::NONE, parameters);
  Context context(fixture.Options());
  parallel::GraphStages stages(schedule, /*rank=*/1, recompute, &model, &context);
  const auto forward = [&](int microbatch) {
    const size_t before = BlockCache::Of(Device{})->used_bytes();
    parallel::StageArrays input = stages.ForInput(/*chunk=*/0, microbatch);
    kernels::Fill(input[0].view(), 0.5, fixture.stream());
    auto output = stages.Forward(/*chunk=*/0, microbatch, std::move(input));
    EXPECT_TRUE(output.ok()) << output.status();
    output->clear();  // sent
    return BlockCache::Of(Device{})->used_bytes() - before;
  };
  forward(2);         // makes what every pass shares
  return forward(5);  // three windows
}

TEST(GptStagesTest, FullRecomputationKeepsTheStagesInputAlone) {
  const size_t input = 3 * kLength * kDim * sizeof(double);
  EXPECT_GE(BytesKept(Recompute::FULL), input);
  EXPECT_LE(BytesKept(Recompute::FULL), input * 5 / 4);  // blocks come in sizes of their own
  EXPECT_GT(BytesKept(Recompute::NONE), 10 * input);
}

TEST(GptStagesTest, EveryFaultOfAPipelineIsSeen) {
  constexpr int kMicrobatches = 6;
  const Result whole = Whole(/*tied=*/false, kMicrobatches);
  for (const Fault fault : {Fault::LATE_GRADIENT, Fault::WEIGHTS_LEFT_OUT,
                            Fault::DROPOUT_BY_MICROBATCH, Fault::MEAN_LOSS}) {
    const PipelineSchedule schedule =
        parallel::MakeSchedule({ScheduleKind::ZB_H1, 2, 1, kMicrobatches});
    const Result stages = InStages(schedule, /*tied=*/false, Recompute::NONE, fault);
    EXPECT_GT(Difference(whole.gradients, stages.gradients), 1e-3) << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace tandem
