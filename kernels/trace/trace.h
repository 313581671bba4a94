// A trace: spans of time with the work done in them, on the machine's monotonic clock. A tracer
// belongs to one process or replica and reaches kernels through their Stream (kernel_span.h). A
// null tracer costs one branch. trace.json and the time split of `tandem bench step` are made from
// its spans.
// Thread rule: any thread adds; one thread takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// The kind of work of a span: one row of a time split.
enum class SpanKind : uint8_t {
  // The first row: kernels.
  GEMM,
  ATTENTION,
  NORM,
  ACTIVATION,
  DROPOUT,
  ELEMENTWISE,
  REDUCE,
  LOSS,
  EMBEDDING,
  OPTIMIZER,
  COLLECTIVE,
  PULL,
  PUSH,
  COMMIT,
  CHECKPOINT,
  STEP,
  PHASE /* of a step */,
  OTHER,
};
const char* NameOf(SpanKind kind);

struct Span {
  const char* name = "";  // a string literal
  SpanKind kind = SpanKind::OTHER;
  uint32_t thread = 0;  // a small number, in the order in which threads first added a span
  int64_t begin_ns = 0, end_ns = 0;
  // The work, 0 if not counted: FLOPs; bytes read and written at least once.
  double flops = 0, bytes = 0;
  uint64_t trace_id = 0;  // the request of the span, the same at caller and server; 0: none
  uint64_t step = 0;      // 0: unknown
  // Vector instructions besides the products that `flops` counts (exponentials, random numbers).
  // Each counts as the multiply-add whose place it takes.
  double other_flops = 0;
};
// The thread number of a span that overlaps others of its thread: a call in flight, a wait for a
// peer.
inline constexpr uint32_t kNoThread = ~uint32_t{0};

// Sets the calling thread's name in traces.
void NameThisThread(std::string name);

// Nanoseconds of the monotonic clock, which all processes of a machine share.
int64_t MonotonicNanoseconds();

class Tracer {
 public:
  explicit Tracer(size_t max_spans = size_t{1} << 20) : max_spans_(max_spans) {}

  // Adds a span and sets its thread. A full tracer drops the span.
  void Add(Span span);
  // Like Add, for a span without a thread.
  void AddConcurrent(Span span);
  // Makes a trace row for work that runs elsewhere, numbered like threads. AddToRow adds a span to
  // the row.
  uint32_t MakeRow(std::string name);
  void AddToRow(uint32_t row, Span span);
  // Takes the spans added since the last call.
  std::vector<Span> Take();

  // Spans dropped so far.
  uint64_t num_dropped() const;
  // Names by thread or row number, of those that added a span. Empty: the thread has no name.
  std::vector<std::string> ThreadNames() const;
  // Returns 1, 2, ...: a number for a call that another process traces too.
  uint64_t NextCall() { return ++num_calls_; }

 private:
  void Keep(const Span& span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_spans_;
  std::atomic<uint64_t> num_calls_{0};
  mutable absl::Mutex mutex_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> thread_names_ ABSL_GUARDED_BY(mutex_);
};

// Adds a span from its construction to its destruction.
class TraceSpan {
 public:
  TraceSpan(Tracer* tracer, SpanKind kind, const char* name, double flops = 0, double bytes = 0,
            double other_flops = 0)
      : tracer_(tracer) {
    if (tracer_ == nullptr) return;
    span_ = {name, kind, 0, MonotonicNanoseconds(), 0, flops, bytes};
    span_.other_flops = other_flops;
  }
  // `what` holds all but the times. Adds the span to `row` (MakeRow) instead of the thread.
  TraceSpan(Tracer* tracer, const Span& what, uint32_t row) : tracer_(tracer), row_(row) {
    if (tracer_ == nullptr) return;
    span_ = what;
    span_.begin_ns = MonotonicNanoseconds();
  }
  ~TraceSpan() {
    if (tracer_ == nullptr) return;
    span_.end_ns = MonotonicNanoseconds();
    if (row_.has_value())
      tracer_->AddToRow(*row_, span_);
    else
      tracer_->Add(span_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  void AddBytes(double bytes) { span_.bytes += bytes; }

 private:
  Tracer* tracer_;
  std::optional<uint32_t> row_;
  Span span_;
};

// A span that one thread begins and another thread may end. Keeps the tracer alive. Does nothing
// without a tracer.
class ConcurrentSpan {
 public:
  ConcurrentSpan() = default;
  // Begins now. `what` holds all but the times.
  ConcurrentSpan(std::shared_ptr<Tracer> tracer, Span what)
      : tracer_(std::move(tracer)), span_(what) {
    if (tracer_ != nullptr) span_.begin_ns = MonotonicNanoseconds();
  }
  // Call once, on one of all copies.
  void End() const {
    if (tracer_ == nullptr) return;
    Span ended = span_;
    ended.end_ns = MonotonicNanoseconds();
    tracer_->AddConcurrent(ended);
  }

  bool recorded() const { return tracer_ != nullptr; }
  uint64_t trace_id() const { return span_.trace_id; }
  void AddBytes(double bytes) { span_.bytes += bytes; }

 private:
  std::shared_ptr<Tracer> tracer_;
  Span span_;
};

}  // namespace tandem
