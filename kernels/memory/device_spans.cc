#include "kernels/memory/device_spans.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

DeviceSpans::DeviceSpans(Device device, void* queue, Tracer* tracer)
    : device_(device), queue_(queue), tracer_(tracer), zero_(Now()) {
  if (!cuda::WaitForQueue(queue).ok()) zero_ = nullptr;
  zero_ns_ = MonotonicNanoseconds();
}

DeviceSpans::~DeviceSpans() {
  if (zero_ == nullptr || spans_.empty() || !cuda::WaitForQueue(queue_).ok()) return;
  const uint32_t row = tracer_->MakeRow(absl::StrCat("cuda:", device_.index));
  for (Timed& timed : spans_) {
    if (timed.begin == nullptr || timed.end == nullptr) continue;
    const absl::StatusOr<double> begin = zero_->SecondsUntil(*timed.begin),
                                 end = zero_->SecondsUntil(*timed.end);
    if (!begin.ok() || !end.ok()) return;
    timed.span.begin_ns = zero_ns_ + static_cast<int64_t>(*begin * 1e9);
    timed.span.end_ns = zero_ns_ + static_cast<int64_t>(*end * 1e9);
    tracer_->AddToRow(row, timed.span);
  }
}

std::unique_ptr<Event> DeviceSpans::Now() const {
  auto event = std::make_unique<Event>(device_, Event::Kind::TIMED);
  return event->Record(queue_).ok() ? std::move(event) : nullptr;
}

size_t DeviceSpans::Begin(const Span& what) {
  spans_.push_back({what, Now(), nullptr});
  return spans_.size() - 1;
}

void DeviceSpans::End(size_t number) { spans_[number].end = Now(); }

}  // namespace tandem
