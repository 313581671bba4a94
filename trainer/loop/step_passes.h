// The forward and backward passes of a training step: this rank's list of the pipeline's schedule,
// whose microbatches are the step's parts. StepPasses gives the loss of each part, and hands
// gradients to GradientSync.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory/graph.h"
#include "trainer/loop/stage_watch.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/pipeline/pipeline.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

struct StepPassesOptions {
  const tasks::Task* task = nullptr;
  parallel::GradientSync* sync = nullptr;
  const parallel::Pipeline* pipeline = nullptr;
  bool may_record = false;  // REQUIRES: a CUDA device, no rows of tables
  std::function<void(const std::string&)> note = nullptr;
};

// On a CUDA device a step may consist of kernels only. Then steps of the same shapes differ only in
// the batch and the step number. After several such steps StepPasses records one as a graph
// (kernels/memory/graph.h), and launches the graph from then on. The host then has almost nothing
// to do.
// A step of other shapes, or a traced step, runs operation by operation and gives the same bits.
// After a trace, a step is recorded anew. If a step cannot be recorded, StepPasses adds a note and
// never records again. With several replicas the host starts each bucket's all-reduce between two
// parts of the graph.
class StepPasses {
 public:
  explicit StepPasses(StepPassesOptions options);

  // Runs the passes. Returns the summed loss of each part, in memory where the stream computes;
  // undefined ones on a rank without the last stage. The next call may overwrite the losses. Run
  // may move the input's arrays to the same memory. Gradients leave for their owners during the
  // passes. The caller calls GradientSync::Finish.
  std::vector<Tensor> Run(Context& context, tasks::StepInput& input,
                          absl::Span<const Variable> rows);
  // Frees a graph that leaves too little device memory; a later step is recorded anew. Call before
  // work outside the steps that needs device memory.
  void MakeRoom();
  // True if the last step was launched as a graph.
  bool launched_graph() const { return launched_graph_; }
  const StageTimes& times() const { return watch_.times(); }

 private:
  // The shapes that two inputs must share for one recording to serve both.
  using Shapes = std::vector<Shape>;
  static Shapes ShapesOf(tasks::StepInput& input);

  std::vector<Tensor> RunEach(Context& context, const tasks::StepInput& input,
                              absl::Span<const Variable> rows);
  // True if enough steps like this one have run to record one.
  bool IsSettled(const Shapes& shapes);
  void Record(Context& context, tasks::StepInput& input);
  void Forget();
  const std::vector<Tensor>& Launch(Context& context);

  int num_parts() const { return options_.pipeline->schedule().num_microbatches; }

  const StepPassesOptions options_;
  StageWatch watch_;
  bool may_record_ = options_.may_record;
  bool launched_graph_ = false;
  Shapes shapes_;                 // of the recorded step, or of the last steps that ran alike
  int num_alike_ = 0;             // number of the last steps with shapes_
  std::unique_ptr<Graph> graph_;  // null: nothing is recorded
  // Arrays that the graph reads (each step's input is copied in) and writes.
  std::vector<Tensor> inputs_, losses_;
};

}  // namespace tandem::loop
