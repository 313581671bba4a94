#include "trainer/parallel/pipeline/graph_stages.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

Tensor RowsFor(const StageLayers& layers, int microbatch, Context& context) {
  const ArrayType type = layers.RowsOf(microbatch);
  return context.Empty(type.shape, type.dtype);
}

GraphStages::GraphStages(const PipelineSchedule& schedule, int rank, Recompute recompute,
                         StageModel* model, Context* context)
    : schedule_(schedule),
      rank_(rank),
      recompute_(recompute),
      model_(*model),
      context_(*context),
      losses_(static_cast<size_t>(schedule.num_microbatches)) {}

StageArrays GraphStages::ForInput(int /*chunk*/, int microbatch) {
  return {RowsFor(model_, microbatch, context_)};
}
StageArrays GraphStages::ForOutputGradient(int /*chunk*/, int microbatch) {
  return {RowsFor(model_, microbatch, context_)};
}

GraphStages::Live& GraphStages::At(int chunk, int microbatch) {
  const auto live = live_.find({chunk, microbatch});
  TANDEM_CHECK(live != live_.end()) << "microbatch " << microbatch << " is not alive";
  return live->second;
}

Tensor GraphStages::Compute(int chunk, int microbatch, Live& live) {
  const Variable output = model_.Forward(context_, chunk, microbatch, live.input);
  live.is_computed = true;
  if (IsLast(chunk))
    live.output = output;
  else
    live.graph = output.node();
  return output.value();
}

absl::StatusOr<StageArrays> GraphStages::Forward(int chunk, int microbatch, StageArrays input) {
  Live& live = live_[{chunk, microbatch}];
  peak_live_ = std::max(peak_live_, static_cast<int>(live_.size()));
  if (!input.empty()) live.input = Variable::Leaf(std::move(input[0]), "stage input");
  // Nobody needs what the last stage would drop.
  if (recompute_ == Recompute::FULL && IsLast(chunk)) return StageArrays();
  const Tensor value = Compute(chunk, microbatch, live);
  if (schedule_.num_stages() == 1) live.output = model_.Loss(context_, microbatch, live.output);
  if (context_.failed()) return context_.status();
  StageArrays output;
  if (!IsLast(chunk)) output.push_back(value);
  if (recompute_ == Recompute::FULL) {
    live.graph = nullptr;
    live.is_computed = false;
  }
  return output;
}

absl::StatusOr<StageArrays> GraphStages::Backward(int chunk, int microbatch, StageArrays gradient,
                                                  bool weights) {
  Live& live = At(chunk, microbatch);
  const bool has_loss = live.is_computed && schedule_.num_stages() == 1;
  if (!live.is_computed) Compute(chunk, microbatch, live);
  BackwardRoot root;
  if (IsLast(chunk)) {
    root.variable = has_loss ? live.output : model_.Loss(context_, microbatch, live.output);
    losses_[microbatch] = root.variable.value();
  } else {
    root = {Variable(gradient[0], live.graph), gradient[0]};
  }
  gradient.clear();
  live.output = Variable();
  live.graph = nullptr;
  tandem::Backward(context_, {root}, weights ? nullptr : &live.deferred);
  if (context_.failed()) return context_.status();
  StageArrays before;
  if (live.input.defined()) {
    LeafNode& leaf = live.input.leaf();
    if (!leaf.has_gradient()) {  // frozen layers behind it, or none that read it
      const Tensor zeros = context_.Empty(leaf.shape(), leaf.dtype());
      kernels::Fill(zeros.view(), 0, context_.stream());
      before.push_back(zeros);
    } else {
      before.push_back(leaf.gradient());
    }
  }
  if (weights) live_.erase({chunk, microbatch});
  return before;
}

absl::Status GraphStages::BackwardWeight(int chunk, int microbatch) {
  At(chunk, microbatch).deferred.Run(context_);
  live_.erase({chunk, microbatch});
  return context_.status();
}

}  // namespace tandem::parallel
