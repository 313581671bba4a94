// A sum over any number of elements in f64: kSumBlock elements per block of threads, then the
// blocks' sums in a fixed order.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/plan/reduce_plan.h"
#include "kernels/reduce.h"

namespace tandem::kernels::cuda {

// Returns to every thread the sum over x[0 .. count) of the elements, or of their squares. `room`
// is shared memory with one value per warp. A thread's elements do not depend on `packs`.
// REQUIRES: kReduceThreads threads call.
template <bool kSquares>
__device__ inline double BlockTotal(const float* x, int64_t count, bool packs, double* room) {
  constexpr int kWidth = kPackOf<float>, kTogether = 4, kStep = kReduceThreads * kWidth;
  double sum[kWidth] = {};
  const auto add = [&](const float(&values)[kWidth]) {
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) {
      const double value = values[e];
      sum[e] += kSquares ? value * value : value;  // the square of an f32 is exact in f64
    }
  };
  int64_t i = static_cast<int64_t>(threadIdx.x) * kWidth;
  for (; packs && i + (kTogether - 1) * kStep + kWidth <= count; i += kTogether * kStep) {
    float values[kTogether][kWidth];
    TANDEM_UNROLL
    for (int k = 0; k < kTogether; ++k) ReadElements<true>(x + i + k * kStep, kWidth, values[k]);
    TANDEM_UNROLL
    for (int k = 0; k < kTogether; ++k) add(values[k]);
  }
  for (; i < count; i += kStep) {
    float values[kWidth];
    ReadElements<false>(x + i, count - i, values);
    add(values);
  }
  return BlockSum((sum[0] + sum[1]) + (sum[2] + sum[3]), room);
}

// The sum of the blocks' sums, on the host. Waits for the stream. NaN if the stream has failed.
double SumOfPartials(const double* partials, int64_t count, const Operation& operation,
                     Stream& stream);

}  // namespace tandem::kernels::cuda
