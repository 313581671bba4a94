#include "trainer/parallel/pipeline/pipeline.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace tandem::parallel {

namespace {

// Runs the operations of an evaluation.
class ForwardStages final : public StageRunner {
 public:
  ForwardStages(const PipelineSchedule& schedule, int rank, StageLayers* layers, Context* context,
                const std::function<void(int, const Variable&)>& take)
      : schedule_(schedule), rank_(rank), layers_(*layers), context_(*context), take_(take) {}

  StageArrays ForInput(int /*chunk*/, int microbatch) override {
    return {RowsFor(layers_, microbatch, context_)};
  }
  StageArrays ForOutputGradient(int, int) override { return {}; }
  absl::StatusOr<StageArrays> Forward(int chunk, int microbatch, StageArrays input) override {
    const Variable before =
        input.empty() ? Variable() : Variable::Constant(std::move(input.front()));
    const Variable rows = layers_.Forward(context_, chunk, microbatch, before);
    if (context_.failed()) return context_.status();
    if (schedule_.StageOf(rank_, chunk) + 1 < schedule_.num_stages())
      return StageArrays{rows.value()};
    take_(microbatch, rows);
    return StageArrays();
  }
  absl::StatusOr<StageArrays> Backward(int, int, StageArrays, bool) override {
    return absl::InternalError("a backward pass in an evaluation");
  }
  absl::Status BackwardWeight(int, int) override {
    return absl::InternalError("a backward pass in an evaluation");
  }

 private:
  const PipelineSchedule& schedule_;
  const int rank_;
  StageLayers& layers_;
  Context& context_;
  const std::function<void(int, const Variable&)>& take_;
};

}  // namespace

Pipeline::Pipeline() : schedule_(MakeSchedule({})) {}

const Pipeline& Pipeline::Whole() {
  static const auto* const whole = new Pipeline();
  return *whole;
}

absl::StatusOr<Pipeline> Pipeline::Create(const PipelineOptions& options,
                                          comm::ProcessGroup& stages, absl::Time deadline) {
  Pipeline pipeline;
  pipeline.schedule_ = MakeSchedule(options.schedule);
  ASSIGN_OR_RETURN(pipeline.report_, VerifySchedule(pipeline.schedule_));
  pipeline.rank_ = stages.rank();
  pipeline.recompute_ = options.recompute;
  pipeline.layers_per_stage_ = options.layers_per_stage;
  ASSIGN_OR_RETURN(pipeline.edges_,
                   MakeEdges(stages, /*is_ring=*/options.schedule.num_chunks > 1, deadline));
  return pipeline;
}

std::vector<IndexRange> Pipeline::LayersHere(const LayersWork& work) const {
  const std::vector<int> layers =
      layers_per_stage_.empty() ? SplitLayers(work, schedule_.num_stages()) : layers_per_stage_;
  std::vector<IndexRange> here;
  int64_t begin = 0;
  for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
    const int64_t end = begin + layers[static_cast<size_t>(stage)];
    if (schedule_.RankOf(stage) == rank_) here.push_back({begin, end});
    begin = end;
  }
  return here;
}

absl::Status RunForwards(const Pipeline& pipeline, int num_microbatches, StageLayers& layers,
                         Context& context,
                         const std::function<void(int microbatch, const Variable& rows)>& take) {
  const PipelineSchedule schedule =
      MakeForwardSchedule(pipeline.schedule().num_ranks(), pipeline.num_chunks(), num_microbatches);
  RETURN_IF_ERROR(VerifySchedule(schedule).status());
  ForwardStages stages(schedule, pipeline.rank(), &layers, &context, take);
  PipelineExecutor executor(schedule, pipeline.rank(), &pipeline.edges(), &context.stream(),
                            /*observer=*/nullptr);
  return executor.Run(stages, context.deadline());
}

}  // namespace tandem::parallel
