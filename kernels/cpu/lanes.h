// Sums and maxima over a run with a fixed order: sixteen virtual lanes (element i goes to lane i mod 16), folded in halves at the
// end. Every processor, vector width and thread count adds in this order. Inline bodies for Vectorised(). A loop over lanes that holds a
// choice carries `#pragma GCC unroll 1`: g++ 12 would unroll it before it has made vectors of it, and then find branches.
#pragma once

#include <cstdint>
#include <limits>

namespace tandem::kernels {

inline constexpr int kLanes = 16;

template <class T>
inline T FoldSum(T (&lane)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

// Sum over i in [0, n) of term(i), in type T.
template <class T, class Term>
inline T LaneSum(int64_t n, const Term& term) {
  T lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  }
  for (int l = 0; i + l < n; ++l) lane[l] += term(i + l);
  return FoldSum(lane);
}

// max[l] = the larger of max[l] and x[l], for kWidth lanes.
template <int kWidth, class T>
inline void RaiseTo(const T* x, T* max) {
#pragma GCC unroll 1
  for (int l = 0; l < kWidth; ++l) {
    const T value = x[l], old = max[l];
    max[l] = old < value ? value : old;
  }
}

// The largest of x[0 .. n - 1]; minus infinity if there is none.
template <class T>
inline T LaneMax(int64_t n, const T* x) {
  T lane[kLanes], other[kLanes];  // two chains, for each comparison waits for the one before
  for (int l = 0; l < kLanes; ++l) lane[l] = -std::numeric_limits<T>::infinity();
  for (int l = 0; l < kLanes; ++l) other[l] = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    RaiseTo<kLanes>(x + i, lane);
    RaiseTo<kLanes>(x + i + kLanes, other);
  }
  RaiseTo<kLanes>(other, lane);
  for (; i < n; ++i) lane[i % kLanes] = lane[i % kLanes] < x[i] ? x[i] : lane[i % kLanes];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] = lane[l] < lane[l + width] ? lane[l + width] : lane[l];
  }
  return lane[0];
}

}  // namespace tandem::kernels
