// A point in a device's queue. Other queues can wait for it, and the host can ask whether it is
// reached. CUDA devices only: on a CPU, work is done when the call returns.
// Thread rule: one thread at a time.
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

  // Marks the point after all work submitted to `queue` so far. An event that was never recorded
  // counts as reached.
  absl::Status Record(void* queue);
  // Lets later work of `queue` wait for the point.
  absl::Status HoldUp(void* queue) const;
  // Returns an error if the device's earlier work failed.
  absl::StatusOr<bool> Reached() const;
  // The device's time from this event to `later`.
  // REQUIRES: both are TIMED and reached.
  absl::StatusOr<double> SecondsUntil(const Event& later) const;

 private:
  void* const event_;  // a cudaEvent_t
};

}  // namespace tandem
