// The distribution of a step's time over its parts. On a CPU: the host's time between marks. On a
// CUDA device: the time of its queue between marks. That time includes pauses in which the queue
// was empty because the host waited for a peer or a server.
// Thread rule: the step's thread.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/memory/event.h"
#include "kernels/memory/stream.h"

namespace tandem::report {

class StepClock {
 public:
  enum Part { COMPUTE, COLLECTIVE, PULL, PUSH };
  static constexpr int kNumParts = 4;

  explicit StepClock(Stream* stream) : stream_(stream) {}

  void Begin();
  // Assigns everything submitted or waited for since the last mark (or Begin) to `part`.
  void Mark(Part part);
  // The times of the last step, by part. Waits for the device, whose error fails the stream.
  std::array<double, kNumParts> Milliseconds();

 private:
  struct Interval {
    Part part;
    double seconds;  // host time
  };
  void RecordPoint(size_t number);

  Stream* const stream_;
  Stopwatch watch_;
  std::vector<Interval> intervals_;
  // On a device: beginnings and ends of intervals; kept from step to step.
  std::vector<std::unique_ptr<Event>> points_;
};

}  // namespace tandem::report
