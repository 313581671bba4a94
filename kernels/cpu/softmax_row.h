// The core of softmax and cross entropy on one row: exponentials after subtracting the maximum, and their sum.
// Inline bodies for Vectorised().
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/math.h"

namespace tandem::kernels {

template <class T>
struct ExpRowResult {
  T max, sum;
};

// e[i] = exp(x[i] - max); e may be x. Minus infinity in x gives 0. REQUIRES: n >= 1 and a finite element.
template <class T>
inline ExpRowResult<T> ExpRow(int64_t n, const T* x, T* e) {
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
  return {max, FoldSum(lane)};
}

}  // namespace tandem::kernels
