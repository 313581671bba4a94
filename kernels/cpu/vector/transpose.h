// Transposes in loops that vectorise. Four perfect shuffles of 256 elements transpose a 16 x 16
// tile; a perfect shuffle takes two permutations per pair of vectors. Inline bodies for
// Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/lanes.h"

namespace tandem::kernels {

inline constexpr int64_t kTileElements = kLanes * kLanes;

// Interleaves the two halves of `from`.
template <class T>
inline void PerfectShuffle(const T* __restrict__ from, T* __restrict__ to) {
  for (int64_t i = 0; i < kTileElements / 2; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = from[i + kTileElements / 2];
  }
}

// Transposes a dense tile into `to`. Overwrites `tile`.
template <class T>
inline void TransposeTile(T* tile, T* to) {
  alignas(64) T other[kTileElements];
  PerfectShuffle(tile, other);
  PerfectShuffle(other, tile);
  PerfectShuffle(tile, other);
  PerfectShuffle(other, to);
}

// totals[i] = the fold (lanes.h) of row i of a dense tile of lane sums. Overwrites `sums`. Sixteen
// folds side by side cost one transpose; single folds would each wait for their own additions.
template <class T>
inline void FoldRows(T* sums, T* totals) {
  alignas(64) T lanes[kTileElements];
  TransposeTile(sums, lanes);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half * kLanes; ++i) lanes[i] += lanes[i + half * kLanes];
  }
  for (int l = 0; l < kLanes; ++l) totals[l] = lanes[l];
}

// to [columns, to_row] = the transpose of `from` [rows, columns].
// REQUIRES: rows and columns are multiples of kLanes.
template <class T>
inline void TransposeRows(const T* from, int64_t rows, int64_t columns, int64_t from_row, T* to,
                          int64_t to_row) {
  alignas(64) T tile[kTileElements], transposed[kTileElements];
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      for (int i = 0; i < kLanes; ++i) {
        for (int l = 0; l < kLanes; ++l) tile[i * kLanes + l] = from[(r + i) * from_row + c + l];
      }
      TransposeTile(tile, transposed);
      for (int i = 0; i < kLanes; ++i) {
        for (int l = 0; l < kLanes; ++l) to[(c + i) * to_row + r + l] = transposed[i * kLanes + l];
      }
    }
  }
}

}  // namespace tandem::kernels
