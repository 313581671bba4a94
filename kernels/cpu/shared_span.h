// The trace of a loop whose threads take turns between products and losses.
// Thread rule: made and destroyed by the thread that runs the loop; Product and Loss from any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/trace/trace.h"

namespace tandem::kernels {

// Measures the time that the threads of one loop spend in products and in the rest. Reports two
// spans of the thread that runs the loop.
class SharedSpan {
 public:
  SharedSpan(Tracer* tracer, const char* products, double flops, double bytes)
      : tracer_(tracer), products_(products), flops_(flops), bytes_(bytes) {
    if (tracer_ != nullptr) begin_ns_ = MonotonicNanoseconds();
  }
  ~SharedSpan() {
    if (tracer_ == nullptr) return;
    const int64_t end_ns = MonotonicNanoseconds();
    const double products = static_cast<double>(product_ns_),
                 losses = static_cast<double>(loss_ns_);
    const double share = products + losses > 0 ? products / (products + losses) : 1;
    const int64_t middle_ns =
        begin_ns_ + static_cast<int64_t>(share * static_cast<double>(end_ns - begin_ns_));
    tracer_->Add({products_, SpanKind::GEMM, 0, begin_ns_, middle_ns, flops_, 0});
    tracer_->Add({"linear_cross_entropy", SpanKind::LOSS, 0, middle_ns, end_ns, 0, bytes_});
  }
  SharedSpan(const SharedSpan&) = delete;
  SharedSpan& operator=(const SharedSpan&) = delete;

  template <class Work>
  void Product(const Work& work) {
    Measure(product_ns_, work);
  }
  template <class Work>
  void Loss(const Work& work) {
    Measure(loss_ns_, work);
  }

 private:
  template <class Work>
  void Measure(std::atomic<int64_t>& sum, const Work& work) {
    const int64_t begin = tracer_ == nullptr ? 0 : MonotonicNanoseconds();
    work();
    if (tracer_ != nullptr)
      sum.fetch_add(MonotonicNanoseconds() - begin, std::memory_order_relaxed);
  }

  Tracer* tracer_;
  const char* const products_;
  const double flops_, bytes_;
  int64_t begin_ns_ = 0;
  std::atomic<int64_t> product_ns_{0}, loss_ns_{0};
};

}  // namespace tandem::kernels
