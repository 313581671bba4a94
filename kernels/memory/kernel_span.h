// A trace span of a stream's work between construction and destruction. On a CPU the span is the
// time of the call. On a CUDA device the span covers the work submitted meanwhile, and NVIDIA's
// tools see it as an NVTX range. Spans nest.
// Thread rule: the stream's thread.
#pragma once

#include <cstddef>

#include "kernels/memory/stream.h"
#include "kernels/trace/trace.h"

namespace tandem {

class KernelSpan {
 public:
  KernelSpan(Stream& stream, SpanKind kind, const char* name, double flops = 0, double bytes = 0,
             double other_flops = 0)
      : stream_(stream) {
    if (stream.tracer() == nullptr && !stream.on_cuda()) return;
    span_ = {name, kind, 0, 0, 0, flops, bytes};
    span_.other_flops = other_flops;
    Begin();
  }
  ~KernelSpan() {
    if (number_ != kNone || stream_.on_cuda()) End();
  }
  KernelSpan(const KernelSpan&) = delete;
  KernelSpan& operator=(const KernelSpan&) = delete;

 private:
  static constexpr size_t kNone = ~size_t{0};
  void Begin();
  void End();

  Stream& stream_;
  Span span_;
  // kNone: not recorded; CPU: 0; device: the span's number in device_spans_
  size_t number_ = kNone;
  DeviceSpans* device_spans_ = nullptr;
};

}  // namespace tandem
