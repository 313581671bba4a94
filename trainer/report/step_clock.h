// Where a step's time goes: on a CPU the host's time between marks, on a CUDA device the time of its queue between them, with the pauses
// in which it had nothing to do because the host waited for a peer or a server.
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
  // What was submitted or waited for since the last mark, or the beginning, belongs to `part`.
  void Mark(Part part);
  // By part, of the last step. Waits for the device, whose error fails the stream.
  std::array<double, kNumParts> Milliseconds();

 private:
  struct Interval {
    Part part;
    double seconds;  // of the host
  };
  void RecordPoint(size_t number);

  Stream* const stream_;
  Stopwatch watch_;
  std::vector<Interval> intervals_;
  std::vector<std::unique_ptr<Event>> points_;  // of a device: where intervals begin and end; kept from step to step
};

}  // namespace tandem::report
