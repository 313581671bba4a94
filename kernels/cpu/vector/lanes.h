// Sums and maxima over a run in a fixed order: element i goes to virtual lane i mod 16, and the
// lanes are folded in halves at the end. Every processor, vector width and thread count adds in
// this order. Inline bodies for Vectorised(). A loop over lanes with a condition carries `#pragma
// GCC unroll 1`: otherwise g++ 12 unrolls it before it vectorises, and then finds branches.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tandem::kernels {

inline constexpr int kLanes = 16;

template <class T>
inline T FoldSum(T (&lane)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

// Adds term(i) for i in [begin, end) to the lanes.
// REQUIRES: begin is a multiple of kLanes.
template <class T, class Term>
inline void AddToLanes(int64_t begin, int64_t end, const Term& term, T (&lane)[kLanes]) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  }
  for (int l = 0; i + l < end; ++l) lane[l] += term(i + l);
}

// Sum of term(i) for i in [0, n), in type T.
template <class T, class Term>
inline T LaneSum(int64_t n, const Term& term) {
  T lane[kLanes] = {};
  AddToLanes(0, n, term, lane);
  return FoldSum(lane);
}

// max[l] = max(max[l], x[l]) for kWidth lanes.
template <int kWidth, class T>
inline void RaiseTo(const T* x, T* max) {
#pragma GCC unroll 1
  for (int l = 0; l < kWidth; ++l) {
    const T value = x[l], old = max[l];
    max[l] = old < value ? value : old;
  }
}

// Maps a float's bits to an integer with the same order. The map is its own inverse.
template <class T>
using OrderedBits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
template <class T>
inline OrderedBits<T> Ordered(OrderedBits<T> bits) {
  return bits ^ ((bits >> (8 * sizeof(T) - 1)) & std::numeric_limits<OrderedBits<T>>::max());
}

// The largest term(i) for i in [0, n), or minus infinity if n is 0. Compares integers, because
// compilers vectorise integer maxima. A NaN may or may not win.
template <class T, class Term>
inline T LaneMaxOf(int64_t n, const Term& term) {
  using Bits = OrderedBits<T>;
  Bits largest = Ordered<T>(std::bit_cast<Bits>(-std::numeric_limits<T>::infinity()));
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, Ordered<T>(std::bit_cast<Bits>(term(i))));
  return std::bit_cast<T>(Ordered<T>(largest));
}

template <class T>
inline T LaneMax(int64_t n, const T* x) {
  return LaneMaxOf<T>(n, [=](int64_t i) { return x[i]; });
}

}  // namespace tandem::kernels
