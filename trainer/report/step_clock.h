// The distribution of a step's time over its parts. On a CPU: the host's time between two parts'
// ends. On a CUDA device: the time of its queue between the ends. The queue's time includes pauses
// in which the queue was empty because the host waited for a peer or a server.
// Thread rule: the step's thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/memory/event.h"
#include "kernels/memory/stream.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

class StepClock final : public StepObserver {
 public:
  explicit StepClock(Stream* stream) : stream_(stream) {}

  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  // Assigns everything submitted or awaited since the last call (or BeforeStep) to `part`.
  void AfterPart(StepPart part) override;
  // Gives a logged step its times. Waits for the device, whose error fails the stream.
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;

 private:
  static constexpr int kNumParts = 4;
  struct Interval {
    StepPart part;
    double seconds;  // host time
  };
  std::array<double, kNumParts> Milliseconds();  // by StepPart
  void RecordPoint(size_t number);

  Stream* const stream_;
  Stopwatch watch_;
  std::vector<Interval> intervals_;
  // On a device: beginnings and ends of intervals; kept from step to step.
  std::vector<std::unique_ptr<Event>> points_;
};

}  // namespace tandem::report
