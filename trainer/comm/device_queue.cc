#include "trainer/comm/device_queue.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem::comm {

DeviceQueue::DeviceQueue(Device device) : queue_(cuda::MakeQueue(device.index)), done_(device) {}
DeviceQueue::~DeviceQueue() { cuda::DestroyQueue(queue_); }

absl::Status DeviceQueue::After(const Event* event) {
  return event == nullptr ? absl::OkStatus() : event->HoldUp(queue_);
}

absl::Status DeviceQueue::Copy(void* to, const void* from, size_t num_bytes) {
  return num_bytes == 0 ? absl::OkStatus() : cuda::CopyAsync(to, from, num_bytes, queue_);
}

absl::Status DeviceQueue::Await(absl::Time deadline, absl::FunctionRef<absl::Status()> failed) {
  RETURN_IF_ERROR(done_.Record(queue_));
  // Begins with short pauses, for short work. Long pauses leave the processor to computing threads.
  for (absl::Duration pause = absl::Microseconds(2);;
       pause = std::min(2 * pause, absl::Microseconds(200))) {
    ASSIGN_OR_RETURN(const bool done, done_.Reached());
    if (done) return absl::OkStatus();
    RETURN_IF_ERROR(failed());
    if (absl::Now() > deadline)
      return absl::DeadlineExceededError("the device did not finish in time");
    absl::SleepFor(pause);
  }
}

}  // namespace tandem::comm
