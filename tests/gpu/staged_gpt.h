// A GPT that ranks of a device train in stages, one block each, and the same one whole: the losses
// of both are equal to rounding.
#pragma once

#include <gtest/gtest.h>
#include <vector>

#include "trainer/models/gpt.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/parallel/pipeline/graph_stages.h"
#include "trainer/parallel/pipeline/verifier.h"

namespace tandem::testing {

struct StagedGptSizes {
  int64_t dim = 16, length = 8;  // a message has dim * length elements of f32
  int stages = 4, microbatches = 8, steps = 20;
};

class StagedGpt : public parallel::StageModel {
 public:
  // The blocks of one stage; of all, where there is one stage.
  StagedGpt(const StagedGptSizes& sizes, const parallel::PipelineSchedule& schedule, int rank,
            ParameterSet& parameters, Stream& stream)
      : sizes_(sizes), gpt_(OptionsOf(sizes, schedule, rank), parameters) {
    for (int m = 0; m < sizes.microbatches; ++m)
      inputs_.push_back(InputOf(m).To(stream.device(), stream));
  }

  parallel::ArrayType RowsOf(int) const override {
    return {Shape{sizes_.length, sizes_.dim}, DType::F32};
  }
  Variable Forward(Context& context, int, int microbatch, const Variable& before) override {
    return gpt_.StageRows(context, Variable(), before, inputs_[microbatch]);
  }
  Variable Loss(Context& context, int microbatch, const Variable& rows) override {
    return gpt_.LossSum(context, Variable(), rows, inputs_[microbatch].targets);
  }

 private:
  static models::GptOptions OptionsOf(const StagedGptSizes& sizes,
                                      const parallel::PipelineSchedule& schedule, int rank) {
    models::GptOptions options{.vocabulary_size = 13,
                               .max_length = sizes.length,
                               .layers = sizes.stages,
                               .heads = 4,
                               .dim = sizes.dim,
                               .ffn_dim = 2 * sizes.dim,
                               .dropout = 0.1f,
                               .tied_embeddings = false};
    const int64_t blocks = sizes.stages / schedule.num_stages();
    options.blocks = IndexRange{rank * blocks, (rank + 1) * blocks};
    return options;
  }
  models::GptInput InputOf(int microbatch) const {
    std::vector<int64_t> positions, row_index, inputs, targets;
    for (int64_t i = 0; i < sizes_.length; ++i) {
      positions.push_back(i);
      row_index.push_back(microbatch * sizes_.length + i);
      inputs.push_back((i * i + 3 * microbatch) % 13);
      targets.push_back(((i + 1) * (i + 1) + 3 * microbatch) % 13);
    }
    return {.rows = {.offsets = Tensor::FromVector(std::vector<int64_t>{0, sizes_.length}),
                     .positions = Tensor::FromVector(positions),
                     .row_index = Tensor::FromVector(row_index),
                     .max_length = sizes_.length},
            .inputs = Tensor::FromVector(inputs),
            .targets = Tensor::FromVector(targets)};
  }

  const StagedGptSizes sizes_;
  models::Gpt gpt_;
  std::vector<models::GptInput> inputs_;
};

// Returns the mean loss of each step where the last stage is, else zeros. `stages`: the pipeline's
// ranks, one stage each; null: this rank has the whole model.
inline std::vector<double> TrainStagedGpt(const StagedGptSizes& sizes, parallel::ScheduleKind kind,
                                          comm::ProcessGroup* stages, Device device) {
  const bool whole = stages == nullptr;
  const auto schedule =
      parallel::MakeSchedule({kind, whole ? 1 : stages->size(), 1, sizes.microbatches});
  EXPECT_TRUE(parallel::VerifySchedule(schedule).ok());
  const int rank = whole ? 0 : stages->rank();
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  std::vector<double> losses(static_cast<size_t>(sizes.steps), 0);
  absl::StatusOr<parallel::PipelineEdges> edges = parallel::PipelineEdges();
  if (!whole) edges = parallel::MakeEdges(*stages, /*is_ring=*/false, deadline);
  if (!edges.ok()) {
    ADD_FAILURE() << edges.status();
    return losses;
  }
  ThreadPool pool(1);
  Stream stream(&pool, device);
  ParameterSet parameters(17, DType::F32, &stream);
  StagedGpt model(sizes, schedule, rank, parameters, stream);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAM}, &parameters);
  const double scale = 1.0 / static_cast<double>(sizes.microbatches * sizes.length);
  for (int step = 1; step <= sizes.steps; ++step) {
    Context context(
        {.stream = &stream, .seed = 17, .step = static_cast<uint64_t>(step), .deadline = deadline});
    parameters.ClearGradients();
    parallel::GraphStages runner(schedule, rank, parallel::Recompute::NONE, &model, &context);
    parallel::PipelineExecutor executor(schedule, rank, &*edges, &stream, nullptr);
    const absl::Status status = executor.Run(runner, deadline);
    EXPECT_TRUE(status.ok()) << status << " in step " << step;
    if (!status.ok()) return losses;
    adam.Update(static_cast<uint64_t>(step), 1e-3, scale, stream);
    for (const Tensor& loss : runner.losses())
      if (loss.defined()) losses[step - 1] += scale * loss.ToHost(stream).At(0);
  }
  EXPECT_TRUE(stream.Wait().ok()) << stream.status();
  return losses;
}

// Every schedule whose ranks have one stage each.
inline void ExpectStagesTrainAsTheWhole(const StagedGptSizes& sizes, comm::ProcessGroup& stages,
                                        Device device) {
  using parallel::ScheduleKind;
  const bool is_last = stages.rank() + 1 == stages.size();
  std::vector<double> whole;
  if (is_last) whole = TrainStagedGpt(sizes, ScheduleKind::GPIPE, nullptr, device);
  for (const ScheduleKind kind :
       {ScheduleKind::GPIPE, ScheduleKind::ONE_F_ONE_B, ScheduleKind::ZB_H1}) {
    const std::vector<double> losses = TrainStagedGpt(sizes, kind, &stages, device);
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(losses[i], whole[i], 1e-5 * whole[i]) << NameOf(kind) << ", step " << i + 1;
    if (is_last) {
      EXPECT_LT(losses.back(), losses.front()) << NameOf(kind);
    }
  }
}

}  // namespace tandem::testing
