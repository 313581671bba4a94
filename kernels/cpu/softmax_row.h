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
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) e[i] = Exp(x[i] - max);
  return {max, LaneSum<T>(n, [=](int64_t i) { return e[i]; })};
}

}  // namespace tandem::kernels
