// What ran when: spans of time with the work done in them, on the machine's monotonic clock. A tracer belongs to one process or
// replica and reaches kernels through their Stream; a null tracer costs one branch. trace.json and the time split of
// `tandem bench step` are made of its spans.
// Thread rule: Add from any thread; Take from one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// What a span spends its time on: the rows of a time split.
enum class SpanKind : uint8_t {
  GEMM, ATTENTION, NORM, ACTIVATION, DROPOUT, ELEMENTWISE, REDUCE, LOSS, EMBEDDING, OPTIMIZER,  // kernels
  COLLECTIVE, PULL, PUSH, COMMIT, CHECKPOINT, STEP, OTHER,
};
const char* NameOf(SpanKind kind);

struct Span {
  const char* name = "";  // a string literal
  SpanKind kind = SpanKind::OTHER;
  uint32_t thread = 0;    // small numbers, in the order in which threads first added a span
  int64_t begin_ns = 0, end_ns = 0;
  double flops = 0, bytes = 0;  // the work, if it has such a measure: floating point operations; bytes read and written at least once
};

// Nanoseconds of the monotonic clock: one clock for all processes of a machine.
int64_t MonotonicNanoseconds();

class Tracer {
 public:
  explicit Tracer(size_t max_spans = size_t{1} << 20) : max_spans_(max_spans) {}

  // Sets the span's thread. A full tracer drops it.
  void Add(Span span);
  // What was added since the last call.
  std::vector<Span> Take();

 private:
  const size_t max_spans_;
  absl::Mutex mutex_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
};

// Adds a span from its construction to its destruction.
class TraceSpan {
 public:
  TraceSpan(Tracer* tracer, SpanKind kind, const char* name, double flops = 0, double bytes = 0) : tracer_(tracer) {
    if (tracer_ != nullptr) span_ = {name, kind, 0, MonotonicNanoseconds(), 0, flops, bytes};
  }
  ~TraceSpan() {
    if (tracer_ == nullptr) return;
    span_.end_ns = MonotonicNanoseconds();
    tracer_->Add(span_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Tracer* tracer_;
  Span span_;
};

}  // namespace tandem
