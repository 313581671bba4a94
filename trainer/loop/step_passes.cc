#include "trainer/loop/step_passes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/parallel/pipeline/graph_stages.h"

namespace tandem::loop {

namespace {

// Steps to wait before recording. By then every product has its algorithm and every kernel its
// shared memory. A trace with the job's default settings is over too.
constexpr int kStepsBefore = 6;

// A task's model as stages.
class TaskStages : public parallel::StageModel {
 public:
  TaskStages(const tasks::Task& task, const tasks::StepInput& input,
             absl::Span<const Variable> rows)
      : task_(task), input_(input), rows_(rows) {}

  parallel::ArrayType RowsOf(int microbatch) const override {
    return task_.RowsOf(input_, microbatch);
  }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return task_.StageRows(context, input_, microbatch, rows_, chunk, before);
  }
  Variable Loss(Context& context, int microbatch, const Variable& rows) override {
    return task_.LossSum(context, input_, microbatch, rows_, rows);
  }

 private:
  const tasks::Task& task_;
  const tasks::StepInput& input_;
  const absl::Span<const Variable> rows_;
};

}  // namespace

StepPasses::StepPasses(StepPassesOptions options)
    : options_(std::move(options)), watch_(options_.pipeline, options_.sync) {}

StepPasses::Shapes StepPasses::ShapesOf(tasks::StepInput& input) {
  Shapes shapes;
  for (const Tensor* tensor : input.Tensors()) shapes.push_back(tensor->shape());
  return shapes;
}

std::vector<Tensor> StepPasses::Run(Context& context, tasks::StepInput& input,
                                    absl::Span<const Variable> rows) {
  Stream& stream = context.stream();
  const bool traced = stream.tracer() != nullptr,
             may_launch = may_record_ && !traced && stream.status().ok();
  if (traced) Forget();  // else the step's memory and the graph's would be in use at once
  const Shapes shapes = may_launch ? ShapesOf(input) : Shapes();
  launched_graph_ = may_launch && graph_ != nullptr && shapes == shapes_;
  if (launched_graph_) {
    const std::vector<Tensor*> from = input.Tensors();
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i]->defined())
        stream.CopyToDevice(inputs_[i].raw(), from[i]->raw(), from[i]->num_bytes());
    }
    return Launch(context);
  }
  MakeRoom();
  for (Tensor* tensor : input.Tensors()) {
    if (tensor->defined()) *tensor = tensor->To(stream.device(), stream);
  }
  if (may_launch && graph_ == nullptr && IsSettled(shapes)) {
    Record(context, input);
    launched_graph_ = graph_ != nullptr;
    if (launched_graph_) return Launch(context);
  }
  return RunEach(context, input, rows);
}

std::vector<Tensor> StepPasses::RunEach(Context& context, const tasks::StepInput& input,
                                        absl::Span<const Variable> rows) {
  options_.sync->BeginStep(num_parts());
  TaskStages model(*options_.task, input, rows);
  const parallel::Pipeline& pipeline = *options_.pipeline;
  parallel::GraphStages stages(pipeline.schedule(), pipeline.rank(), pipeline.recompute(), &model,
                               &context);
  parallel::PipelineExecutor executor(pipeline.schedule(), pipeline.rank(), &pipeline.edges(),
                                      &context.stream(), &watch_);
  watch_.BeginList(context);
  context.Fail(executor.Run(stages, context.deadline()));
  watch_.EndList();
  return stages.losses();
}

bool StepPasses::IsSettled(const Shapes& shapes) {
  if (shapes != shapes_) {
    shapes_ = shapes;
    num_alike_ = 0;
  }
  return ++num_alike_ > kStepsBefore;
}

void StepPasses::Record(Context& context, tasks::StepInput& input) {
  // Sets the step number now, because a recording cannot.
  context.stream().StepOnDevice(context.step());
  if (!context.stream().status().ok()) return;
  parallel::GradientSync& sync = *options_.sync;
  absl::StatusOr<std::unique_ptr<Graph>> graph =
      Graph::Record(context.stream(), [&](Graph::Recording& recording) {
        sync.OnBucket(
            [&](size_t bucket) { recording.DoOnHost([&sync, bucket] { sync.Reduce(bucket); }); });
        losses_ = RunEach(context, input, {});
        sync.Finish(context);  // fills gradients that no loss reaches with zeros
        sync.OnBucket(nullptr);
      });
  if (context.failed()) return Forget();
  if (!graph.ok()) {
    may_record_ = false;
    Forget();
    options_.note(
        absl::StrCat("steps run without CUDA graphs: ", std::string(graph.status().message())));
    return;
  }
  graph_ = *std::move(graph);
  for (const Tensor* tensor : input.Tensors()) inputs_.push_back(*tensor);
}

void StepPasses::MakeRoom() {
  if (graph_ != nullptr && !graph_->LeavesRoom()) Forget();
}

void StepPasses::Forget() {
  inputs_.clear();
  losses_.clear();
  graph_ = nullptr;
}

const std::vector<Tensor>& StepPasses::Launch(Context& context) {
  context.stream().StepOnDevice(context.step());
  options_.sync->BeginStep(num_parts());
  options_.sync->Replay();
  graph_->Launch();
  return losses_;
}

}  // namespace tandem::loop
