// What a stream does between a span's construction and its destruction, in its tracer if it has one: on a CPU the time of the call, on a
// CUDA device that of the work submitted meanwhile, which NVIDIA's tools see too, as an NVTX range. Spans nest.
// Thread rule: the stream's thread.
#pragma once

#include <cstddef>

#include "kernels/memory/stream.h"
#include "kernels/trace/trace.h"

namespace tandem {

class KernelSpan {
 public:
  KernelSpan(Stream& stream, SpanKind kind, const char* name, double flops = 0, double bytes = 0, double other_flops = 0)
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
  size_t number_ = kNone;  // kNone: not recorded; of a CPU 0, of a device among its spans
  DeviceSpans* device_spans_ = nullptr;
};

}  // namespace tandem
