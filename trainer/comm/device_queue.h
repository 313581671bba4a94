// The device queue of a process group, beside the queue that computes. The host polls the queue
// with a deadline and is never blocked by it.
// Thread rule: the group's worker thread.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/memory/event.h"

namespace tandem::comm {

// The default check of a wait: nothing ends the wait early.
inline absl::Status NeverFails() { return absl::OkStatus(); }

class DeviceQueue {
 public:
  explicit DeviceQueue(Device device);
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  void* queue() const { return queue_; }
  // Makes all later submissions wait for the event; null: they wait for nothing.
  absl::Status After(const Event* event);
  absl::Status Copy(void* to, const void* from, size_t num_bytes);
  // Waits until all submitted work has run. Returns Ok, the device's error, or DeadlineExceeded.
  // Polls `failed` and returns its status early if that is not Ok.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<absl::Status()> failed = NeverFails);

 private:
  void* const queue_;
  Event done_;
};

}  // namespace tandem::comm
