#include "kernels/memory/kernel_span.h"

#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/memory/device_spans.h"

namespace tandem {

void KernelSpan::Begin() {
  if (!stream_.on_cuda()) {
    number_ = 0;
    span_.begin_ns = MonotonicNanoseconds();
    return;
  }
  cuda::PushRange(span_.name);
  device_spans_ = stream_.device_spans();
  if (device_spans_ != nullptr) number_ = device_spans_->Begin(span_);
}

// The stream's tracer may end inside a span; the span is then lost.
void KernelSpan::End() {
  if (!stream_.on_cuda()) {
    span_.end_ns = MonotonicNanoseconds();
    if (stream_.tracer() != nullptr) stream_.tracer()->Add(span_);
    return;
  }
  if (number_ != kNone && stream_.device_spans() == device_spans_) device_spans_->End(number_);
  cuda::PopRange();
}

}  // namespace tandem
