// A point in a device's queue: other queues can be held up until it is reached, and the host can ask. Works on CUDA devices only;
// what a CPU is given has been done when the call returns. Thread rule: one thread at a time.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/device.h"

namespace tandem {

class Event {
 public:
  enum class Kind { UNTIMED, TIMED };
  // REQUIRES: `device` is a CUDA device.
  explicit Event(Device device, Kind kind = Kind::UNTIMED);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // The point behind all that `queue` has been given so far. Until the first call the event counts as reached.
  absl::Status Record(void* queue);
  // What `queue` is given from now on runs after the point.
  absl::Status HoldUp(void* queue) const;
  // An error is that of the device's earlier work.
  absl::StatusOr<bool> Reached() const;
  // The device's time from here to `later`. REQUIRES: both are TIMED and reached.
  absl::StatusOr<double> SecondsUntil(const Event& later) const;

 private:
  void* const event_;  // a cudaEvent_t
};

}  // namespace tandem
