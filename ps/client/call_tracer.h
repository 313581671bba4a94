// The spans of a client's calls, recorded for the traced steps (TableAdmin::TraceSteps). A trace
// then shows each call as its trainer sees it.
// Thread rule: same as RowClient.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/trace/trace.h"

namespace tandem::ps {

class CallTracer {
 public:
  // Traces steps `first` to `last`. A null `tracer` traces nothing.
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) {
    tracer_ = std::move(tracer);
    first_ = first;
    last_ = last;
  }
  // Begins the span of a call by trainer `trainer`. Returns an empty span if the step is not
  // traced.
  ConcurrentSpan Begin(uint32_t trainer, SpanKind kind, const char* name, uint64_t step) const {
    if (tracer_ == nullptr || step < first_ || step > last_) return {};
    Span span;
    span.name = name;
    span.kind = kind;
    span.step = step;
    span.trace_id = uint64_t{trainer + 1} << 40 | tracer_->NextCall();  // unique across trainers
    return {tracer_, span};
  }

 private:
  std::shared_ptr<Tracer> tracer_;
  uint64_t first_ = 0, last_ = 0;
};

}  // namespace tandem::ps
