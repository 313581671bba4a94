// The queue on which a process group of a device works, beside the one that computes. The host asks it whether it is done, with a
// deadline, and is never held up by it. Thread rule: the group's worker thread.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/memory/event.h"

namespace tandem::comm {

// What a wait asks all the time, where nothing can end it early.
inline absl::Status NeverFails() { return absl::OkStatus(); }

class DeviceQueue {
 public:
  explicit DeviceQueue(Device device);
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  void* queue() const { return queue_; }
  // What is submitted from now on waits for the event; null: for nothing.
  absl::Status After(const Event* event);
  absl::Status Copy(void* to, const void* from, size_t num_bytes);
  // Until all that was submitted has run: Ok, the device's error, or DeadlineExceeded. Ends early with what `failed`, asked all
  // the time, returns if that is not Ok.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<absl::Status()> failed = NeverFails);

 private:
  void* const queue_;
  Event done_;
};

}  // namespace tandem::comm
