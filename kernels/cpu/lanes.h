// Sums and maxima over a run with a fixed order: sixteen virtual lanes (element i goes to lane i mod 16), folded in halves at the
// end. Every processor, vector width and thread count adds in this order. Inline bodies for Vectorised().
#pragma once

#include <cstdint>
#include <cstring>
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

// The largest term(i), i in [0, n); minus infinity if there is none.
template <class T, class Term>
inline T LaneMaxOf(int64_t n, const Term& term) {
  // Spelt as vectors: the compiler keeps sixteen comparisons of an array as sixteen scalars.
  typedef T Lanes __attribute__((vector_size(kLanes * sizeof(T))));
  Lanes lane = Lanes{} - std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    T terms[kLanes];
    for (int l = 0; l < kLanes; ++l) terms[l] = term(i + l);
    Lanes next;
    std::memcpy(&next, terms, sizeof(next));
    lane = lane < next ? next : lane;
  }
  for (int l = 0; i + l < n; ++l) lane[l] = lane[l] < term(i + l) ? term(i + l) : lane[l];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] = lane[l] < lane[l + width] ? lane[l + width] : lane[l];
  }
  return lane[0];
}

template <class T>
inline T LaneMax(int64_t n, const T* x) {
  return LaneMaxOf<T>(n, [=](int64_t i) { return x[i]; });
}

}  // namespace tandem::kernels
