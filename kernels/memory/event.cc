#include "kernels/memory/event.h"

#include "kernels/base/check.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

namespace {

int CudaIndex(Device device) {
  TANDEM_CHECK(device.is_cuda()) << "events are points in queues, and a CPU has none";
  return device.index;
}

}  // namespace

Event::Event(Device device, Kind kind)
    : event_(cuda::MakeEvent(CudaIndex(device), kind == Kind::TIMED)) {}
Event::~Event() { cuda::DestroyEvent(event_); }

absl::Status Event::Record(void* queue) { return cuda::RecordEvent(event_, queue); }
absl::Status Event::HoldUp(void* queue) const { return cuda::WaitForEvent(event_, queue); }
absl::StatusOr<bool> Event::Reached() const { return cuda::QueryEvent(event_); }
absl::StatusOr<double> Event::SecondsUntil(const Event& later) const {
  return cuda::SecondsBetween(event_, later.event_);
}

}  // namespace tandem
