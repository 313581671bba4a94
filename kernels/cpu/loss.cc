#include "kernels/loss.h"

#include <cmath>

#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kExpCost = 2;  // per element, in additions that wait for memory

// exps[i] = exp(x[i] - max), computed as 2^((x[i] - max) log2 e). Returns their sum, in LaneSum's
// order.
template <class T>
inline Compute<T> ExpAndSum(int64_t n, const T* x, Compute<T> max, Compute<T>* exps) {
  using C = Compute<T>;
  C lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) {
      const C e = Exp2((Load(x[i + l]) - max) * C(kLog2E));
      exps[i + l] = e;
      lane[l] += e;
    }
  }
  for (int l = 0; i + l < n; ++l) lane[l] += exps[i + l] = Exp2((Load(x[i + l]) - max) * C(kLog2E));
  return FoldSum(lane);
}

// Returns the row's loss. `exps` [n] is working memory. `grad` may be x, or null.
template <class T>
inline Compute<T> CrossEntropyRow(int64_t n, const T* x, int64_t target, T* grad,
                                  Compute<T>* exps) {
  using C = Compute<T>;
  const C target_logit = Load(x[target]);
  const C max = LaneMaxOf<C>(n, [=](int64_t i) { return Load(x[i]); });
  const C sum = ExpAndSum(n, x, max, exps);
  if (grad != nullptr) {
    const C inverse = C(1) / sum;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) grad[i] = Store<T>(exps[i] * inverse);
    grad[target] = Store<T>(exps[target] * inverse - C(1));
  }
  return Log(sum) + (max - target_logit);
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, Stream& stream) {
  const int64_t rows = args.logits.shape.num_rows(), columns = args.logits.shape[-1];
  TANDEM_CHECK(args.logits.is_dense() && args.target.is_dense() && args.loss.is_dense() &&
               args.grad.is_dense())
      << args.logits.shape;
  TANDEM_CHECK_EQ(args.target.num_elements(), rows);
  TANDEM_CHECK_EQ(args.loss.num_elements(), rows);
  TANDEM_CHECK(args.grad.empty() || args.grad.num_elements() == rows * columns) << args.grad.shape;
  const KernelSpan span(stream, SpanKind::LOSS, "cross_entropy", 0,
                        static_cast<double>(args.logits.num_bytes() + args.target.num_bytes() +
                                            args.loss.num_bytes() + args.grad.num_bytes()));
  if (stream.on_cuda()) return cuda::CrossEntropy(args, stream);
  const int64_t* target = args.target.as<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    TANDEM_CHECK(target[r] >= 0 && target[r] < columns)
        << "target " << target[r] << " of row " << r << ", classes " << columns;
  }
  WithStorageType(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.logits.as<T>();
    Compute<T>* loss = args.loss.as<Compute<T>>();
    T* grad = args.grad.empty() ? nullptr : args.grad.as<T>();
    ParallelRows(stream, rows, columns * kExpCost, [=](int64_t begin, int64_t end) {
      Compute<T>* exps = Scratch<Compute<T>>(ScratchSlot::TASK_A, columns);
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          T* grad_row = grad == nullptr ? nullptr : grad + r * columns;
          loss[r] = CrossEntropyRow(columns, x + r * columns, target[r], grad_row, exps);
        }
      });
    });
  });
}

void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream) {
  const int64_t n = args.logits.num_elements();
  TANDEM_CHECK(args.logits.is_dense() && args.label.is_dense() && args.loss.is_dense() &&
               args.grad.is_dense())
      << args.logits.shape;
  TANDEM_CHECK_EQ(args.label.num_elements(), n);
  TANDEM_CHECK_EQ(args.loss.num_elements(), n);
  TANDEM_CHECK(args.grad.empty() || args.grad.num_elements() == n) << args.grad.shape;
  const KernelSpan span(stream, SpanKind::LOSS, "binary_cross_entropy", 0,
                        static_cast<double>(args.logits.num_bytes() + args.label.num_bytes() +
                                            args.loss.num_bytes() + args.grad.num_bytes()));
  if (stream.on_cuda()) return cuda::BinaryCrossEntropy(args, stream);
  WithFloatType(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *x = args.logits.as<T>(), *label = args.label.as<T>();
    T *loss = args.loss.as<T>(), *grad = args.grad.empty() ? nullptr : args.grad.as<T>();
    ParallelRows(stream, n, 2 * kExpCost, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          // max(x, 0) - x label + log(1 + exp(-|x|)) combines both logarithms of the sigmoid
          // without overflow.
          const T v = x[i], y = label[i], positive = v > T(0) ? v : T(0);
          const T e = Exp2(Abs(v) * T(-kLog2E));
          loss[i] = (positive - v * y) + Log1p(e);
          if (grad != nullptr) grad[i] = (v < T(0) ? e : T(1)) / (T(1) + e) - y;
        }
      });
    });
  });
}

void RelativeExponentials(const ArrayView& output, const ArrayView& log_sum,
                          const ArrayView& largest, Stream& stream) {
  const int64_t rows = output.num_elements();
  for (const ArrayView* view : {&output, &log_sum, &largest})
    TANDEM_CHECK(view->is_dense() && view->num_elements() == rows) << view->shape;
  const KernelSpan span(stream, SpanKind::LOSS, "relative_exponentials", 0,
                        3.0 * static_cast<double>(output.num_bytes()));
  if (stream.on_cuda()) return cuda::RelativeExponentials(output, log_sum, largest, stream);
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rows; ++r)
      output.as<T>()[r] = std::exp(log_sum.as<T>()[r] - largest.as<T>()[r]);
  });
}

void JoinedLosses(const JoinedLossesArgs& args, Stream& stream) {
  const int64_t rows = args.loss.num_elements();
  for (const ArrayView* view :
       {&args.largest, &args.exponentials, &args.target_logit, &args.log_sum, &args.loss})
    TANDEM_CHECK(view->is_dense() && view->num_elements() == rows) << view->shape;
  const KernelSpan span(stream, SpanKind::LOSS, "joined_losses", 0,
                        5.0 * static_cast<double>(args.loss.num_bytes()));
  if (stream.on_cuda()) return cuda::JoinedLosses(args, stream);
  WithFloatType(args.loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < rows; ++r) {
      const T log_sum = args.largest.as<T>()[r] + std::log(args.exponentials.as<T>()[r]);
      args.log_sum.as<T>()[r] = log_sum;
      args.loss.as<T>()[r] = log_sum - args.target_logit.as<T>()[r];
    }
  });
}

}  // namespace tandem::kernels
