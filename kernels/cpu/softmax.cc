#include "kernels/softmax.h"

#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kSoftmaxCost = 10;  // per element, in additions

// e[i] = exp(x[i] - max), and returns their sum. e may be x. Minus infinity in x gives 0.
// REQUIRES: n >= 1 and a finite element.
template <class T>
inline T ExpRow(int64_t n, const T* x, T* e) {
  const T max = LaneMax(n, x);
  T lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = T(0);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) {
      const T value = Exp(x[i + l] - max);
      e[i + l] = value;
      lane[l] += value;
    }
  }
  for (int l = 0; i + l < n; ++l) lane[l] += e[i + l] = Exp(x[i + l] - max);
  return FoldSum(lane);
}

}  // namespace

void SoftmaxForward(const ArrayView& output, const ArrayView& x, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && x.is_dense());
  TANDEM_CHECK_EQ(output.num_elements(), x.num_elements());
  const KernelSpan span(stream, SpanKind::ACTIVATION, "softmax_forward", 0,
                        static_cast<double>(2 * x.num_bytes()));
  if (stream.on_cuda()) return cuda::SoftmaxForward(output, x, stream);
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  WithFloatType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    T* out = output.as<T>();
    ParallelRows(stream, rows, columns * kSoftmaxCost, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          T* to = out + r * columns;
          const T inverse = T(1) / ExpRow(columns, from + r * columns, to);
          for (int64_t c = 0; c < columns; ++c) to[c] *= inverse;
        }
      });
    });
  });
}

void SoftmaxBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                     const ArrayView& output, Stream& stream) {
  TANDEM_CHECK(grad_input.is_dense() && grad_output.is_dense() && output.is_dense());
  TANDEM_CHECK_EQ(grad_input.num_elements(), output.num_elements());
  TANDEM_CHECK_EQ(grad_output.num_elements(), output.num_elements());
  const KernelSpan span(stream, SpanKind::ACTIVATION, "softmax_backward", 0,
                        static_cast<double>(3 * output.num_bytes()));
  if (stream.on_cuda()) return cuda::SoftmaxBackward(grad_input, grad_output, output, stream);
  const int64_t rows = output.shape.num_rows(), columns = output.shape[-1];
  WithFloatType(output.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *y_data = output.as<T>(), *grad_data = grad_output.as<T>();
    T* out = grad_input.as<T>();
    ParallelRows(stream, rows, columns * 2, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const T *y = y_data + r * columns, *grad = grad_data + r * columns;
          T* to = out + r * columns;
          const T dot = LaneSum<T>(columns, [=](int64_t i) { return y[i] * grad[i]; });
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c) to[c] = y[c] * (grad[c] - dot);
        }
      });
    });
  });
}

}  // namespace tandem::kernels
