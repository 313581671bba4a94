// The forward and backward passes of a training step: the loss of its parts, and gradients handed to GradientSync. Where a step is nothing but
// kernels on a CUDA device, those of the next step of the same shapes differ by what they read alone: its batch and its number. So after
// some such steps one is recorded as a graph (kernels/memory/graph.h), and from then on launched: the host then has next to nothing to do.
// A step of other shapes, or a traced one, runs operation by operation as ever, and has the same bits; after a trace a step is recorded
// anew. A step that cannot be recorded is worth a note, and no other is then. With several replicas the host starts each bucket's
// all-reduce between two parts of the graph.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/memory/graph.h"
#include "trainer/tasks/task.h"
#include "trainer/parallel/gradient_sync.h"

namespace tandem::loop {

struct StepPassesOptions {
  const tasks::Task* task = nullptr;
  parallel::GradientSync* sync = nullptr;
  int num_parts = 1;
  bool may_record = false;  // REQUIRES: a CUDA device, no rows of a table
  std::function<void(const std::string&)> note = nullptr;
};

class StepPasses {
 public:
  explicit StepPasses(StepPassesOptions options) : options_(std::move(options)) {}

  // The summed loss of every part, where the stream computes; the next call may overwrite them. The input's arrays may lie there, too,
  // afterwards. Gradients leave for their owners on the way; GradientSync::Finish is the caller's.
  std::vector<Tensor> Run(Context& context, tasks::StepInput& input, const Variable& rows);
  // Before work beside the steps that needs a device's memory: gives a graph up, to be recorded anew, that leaves too little.
  void MakeRoom();
  // Whether the last step was launched as a graph.
  bool launched_graph() const { return launched_graph_; }

 private:
  // What the passes of two inputs must have in common for one recording to serve both.
  using Shapes = std::vector<Shape>;
  static Shapes ShapesOf(tasks::StepInput& input);

  Variable Forward(Context& context, const tasks::StepInput& input, int part, const Variable& rows) const;
  std::vector<Tensor> RunEach(Context& context, const tasks::StepInput& input, const Variable& rows);
  // Whether enough steps like this one have run for one to be recorded.
  bool IsSettled(const Shapes& shapes);
  void Record(Context& context, tasks::StepInput& input);
  void Forget();
  const std::vector<Tensor>& Launch(Context& context);

  const StepPassesOptions options_;
  bool may_record_ = options_.may_record;
  bool launched_graph_ = false;
  Shapes shapes_;      // of the last steps that ran alike, or recorded
  int num_alike_ = 0;  // how many had them
  std::unique_ptr<Graph> graph_;         // null: nothing is recorded
  std::vector<Tensor> inputs_, losses_;  // what the graph reads, which takes the arrays of each step, and what it writes
};

}  // namespace tandem::loop
