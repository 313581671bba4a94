// Loops over long runs of elements in strips, and prefetches data some strips ahead. The hardware
// prefetcher stops at page ends and leaves a third of the memory bandwidth unused. Only a hint: no
// result depends on it. Inline bodies for Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::kernels {

inline constexpr int64_t kStrip = 128, kFetchedAhead = 512;  // in elements

// Prefetches `count` elements, which may lie past the array's end.
template <int kWrite, class T>
inline void Fetch(const T* first, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T)))
    __builtin_prefetch(first + i, kWrite, 3);
}

// Calls body(begin, end) for each strip of [0, n) in order. The body reads elements [begin, end) of
// the arrays.
template <class Body, class... Arrays>
inline void InStrips(int64_t n, const Body& body, const Arrays*... arrays) {
  for (int64_t begin = 0; begin < n; begin += kStrip) {
    if (begin + kFetchedAhead < n) (Fetch<0>(arrays + begin + kFetchedAhead, kStrip), ...);
    body(begin, std::min(n, begin + kStrip));
  }
}

}  // namespace tandem::kernels
