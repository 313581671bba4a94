#include "kernels/loss.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/softmax_row.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kExpCost = 10;  // per element, in additions

// grad may be null: then the exponentials are summed and not kept.
template <class T>
inline T CrossEntropyRow(int64_t n, const T* x, int64_t target, T* grad) {
  const T target_logit = x[target];
  if (grad == nullptr) {
    const T max = LaneMax(n, x);
    const T sum = LaneSum<T>(n, [=](int64_t i) { return Exp(x[i] - max); });
    return Log(sum) + (max - target_logit);
  }
  const ExpRowResult<T> row = ExpRow(n, x, grad);
  const T inverse = T(1) / row.sum;
  for (int64_t i = 0; i < n; ++i) grad[i] *= inverse;
  grad[target] -= T(1);
  return Log(row.sum) + (row.max - target_logit);
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, Stream& stream) {
  const int64_t rows = args.logits.shape.num_rows(), columns = args.logits.shape[-1];
  TANDEM_CHECK(args.logits.is_dense()) << args.logits.shape;
  TANDEM_CHECK_EQ(args.target.num_elements(), rows);
  TANDEM_CHECK_EQ(args.loss.num_elements(), rows);
  TANDEM_CHECK(args.grad.empty() || args.grad.num_elements() == rows * columns) << args.grad.shape;
  const int64_t* target = args.target.as<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    TANDEM_CHECK(target[r] >= 0 && target[r] < columns) << "target " << target[r] << " of row " << r << ", classes " << columns;
  }
  WithFloatType(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.logits.as<T>();
    T *loss = args.loss.as<T>(), *grad = args.grad.empty() ? nullptr : args.grad.as<T>();
    ParallelRows(stream, rows, columns * kExpCost, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          loss[r] = CrossEntropyRow(columns, x + r * columns, target[r], grad == nullptr ? nullptr : grad + r * columns);
        }
      });
    });
  });
}

void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream) {
  const int64_t n = args.logits.num_elements();
  TANDEM_CHECK_EQ(args.label.num_elements(), n);
  TANDEM_CHECK_EQ(args.loss.num_elements(), n);
  TANDEM_CHECK(args.grad.empty() || args.grad.num_elements() == n) << args.grad.shape;
  WithFloatType(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *x = args.logits.as<T>(), *label = args.label.as<T>();
    T *loss = args.loss.as<T>(), *grad = args.grad.empty() ? nullptr : args.grad.as<T>();
    ParallelRows(stream, n, 2 * kExpCost, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          // max(x, 0) - x label + log(1 + exp(-|x|)): both logarithms of the sigmoid, without overflow.
          const T v = x[i], y = label[i], positive = v > T(0) ? v : T(0);
          loss[i] = (positive - v * y) + Log1p(Exp(-Abs(v)));
          if (grad != nullptr) grad[i] = Sigmoid(v) - y;
        }
      });
    });
  });
}

}  // namespace tandem::kernels
