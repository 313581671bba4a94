#include "kernels/trace/trace.h"

#include <chrono>

namespace tandem {

namespace {

uint32_t NextRow() {
  static std::atomic<uint32_t> next{0};
  return next.fetch_add(1);
}

uint32_t ThisThread() {
  thread_local const uint32_t number = NextRow();
  return number;
}

std::string& ThisThreadsName() {
  thread_local std::string name;
  return name;
}

}  // namespace

void NameThisThread(std::string name) { ThisThreadsName() = std::move(name); }

const char* NameOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::GEMM:
      return "gemm";
    case SpanKind::ATTENTION:
      return "attention";
    case SpanKind::NORM:
      return "norm";
    case SpanKind::ACTIVATION:
      return "activation";
    case SpanKind::DROPOUT:
      return "dropout";
    case SpanKind::ELEMENTWISE:
      return "elementwise";
    case SpanKind::REDUCE:
      return "reduce";
    case SpanKind::LOSS:
      return "loss";
    case SpanKind::EMBEDDING:
      return "embedding";
    case SpanKind::OPTIMIZER:
      return "optimizer";
    case SpanKind::COLLECTIVE:
      return "collective";
    case SpanKind::PULL:
      return "pull";
    case SpanKind::PUSH:
      return "push";
    case SpanKind::COMMIT:
      return "commit";
    case SpanKind::CHECKPOINT:
      return "checkpoint";
    case SpanKind::STEP:
      return "step";
    case SpanKind::PHASE:
      return "phase";
    case SpanKind::OTHER:
      return "other";
  }
  return "?";
}

int64_t MonotonicNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Tracer::Add(Span span) {
  span.thread = ThisThread();
  absl::MutexLock lock(&mutex_);
  if (thread_names_.size() <= span.thread) thread_names_.resize(span.thread + 1);
  if (thread_names_[span.thread].empty()) thread_names_[span.thread] = ThisThreadsName();
  Keep(span);
}

void Tracer::AddConcurrent(Span span) {
  span.thread = kNoThread;
  absl::MutexLock lock(&mutex_);
  Keep(span);
}

uint32_t Tracer::MakeRow(std::string name) {
  const uint32_t row = NextRow();
  absl::MutexLock lock(&mutex_);
  if (thread_names_.size() <= row) thread_names_.resize(row + 1);
  thread_names_[row] = std::move(name);
  return row;
}

void Tracer::AddToRow(uint32_t row, Span span) {
  span.thread = row;
  absl::MutexLock lock(&mutex_);
  Keep(span);
}

void Tracer::Keep(const Span& span) {
  if (spans_.size() < max_spans_)
    spans_.push_back(span);
  else
    ++num_dropped_;
}

std::vector<Span> Tracer::Take() {
  absl::MutexLock lock(&mutex_);
  std::vector<Span> taken;
  taken.swap(spans_);
  return taken;
}

uint64_t Tracer::num_dropped() const {
  absl::MutexLock lock(&mutex_);
  return num_dropped_;
}

std::vector<std::string> Tracer::ThreadNames() const {
  absl::MutexLock lock(&mutex_);
  return thread_names_;
}

}  // namespace tandem
