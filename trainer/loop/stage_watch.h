// Watches a rank work through its list of a pipeline's operations: tells GradientSync of each pass,
// traces each operation by name, and measures how long the rank works and how long the list takes.
// Thread rule: the step's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/memory/kernel_span.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/pipeline/pipeline.h"

namespace tandem::loop {

// The time of a rank's lists so far, without the first step's, which makes the memory. Not measured
// on a CUDA device, where the host only submits the work.
struct StageTimes {
  double busy_seconds = 0;  // in operations
  double seconds = 0;       // from the first operation's begin to the last one's end
};

class StageWatch final : public parallel::StageObserver {
 public:
  // Spans are named "forward" and "backward" of one stage, else "F3 stage 1" and "wait F3 stage 1":
  // microbatch 3, and the time in which the rank waits for its message.
  // REQUIRES: all arguments outlive the watch, which outlives the tracer's spans.
  StageWatch(const parallel::Pipeline* pipeline, parallel::GradientSync* sync);

  // Begins and ends a step's list.
  void BeginList(Context& context);
  void EndList();

  void Waits(const parallel::StageOp& op) override;
  void Begins(const parallel::StageOp& op) override;
  void Ends(const parallel::StageOp& op) override;

  const StageTimes& times() const { return times_; }

 private:
  const parallel::Pipeline& pipeline_;
  parallel::GradientSync& sync_;
  std::vector<std::string> names_, wait_names_;  // by place in the list
  Context* context_ = nullptr;                   // of the step
  std::optional<KernelSpan> span_;
  size_t place_ = 0;
  bool measures_ = false;
  int64_t num_lists_ = 0;
  Stopwatch of_op_, of_list_;
  double list_seconds_ = 0;  // up to the last operation that has ended
  StageTimes times_;
};

}  // namespace tandem::loop
