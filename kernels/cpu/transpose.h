// Transposes in loops that vectorise: four perfect shuffles of 16 rows transpose a tile of 16 x 16, and a perfect shuffle of two
// rows is two permutations of vectors. Inline bodies for Vectorised().
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"

namespace tandem::kernels {

// to = rows 0, h, 1, h + 1, ... of `from` (h = kLanes / 2) woven in pairs, element by element; rows of `to` follow each other.
template <class T>
inline void WeaveRows(const T* __restrict__ from, int64_t from_row, T* __restrict__ to) {
  for (int r = 0; r < kLanes / 2; ++r) {
    const T *x = from + r * from_row, *y = from + (r + kLanes / 2) * from_row;
    for (int l = 0; l < kLanes; ++l) {
      to[2 * (r * kLanes + l)] = x[l];
      to[2 * (r * kLanes + l) + 1] = y[l];
    }
  }
}

// to [kLanes, kLanes], dense, is the transpose of `from`.
template <class T>
inline void TransposeTile(const T* from, int64_t from_row, T* to) {
  alignas(64) T first[kLanes * kLanes], second[kLanes * kLanes];
  WeaveRows(from, from_row, first);
  WeaveRows(first, kLanes, second);
  WeaveRows(second, kLanes, first);
  WeaveRows(first, kLanes, to);
}

// to [columns, to_row] = factor times the transpose of `from` [rows, columns]. REQUIRES: rows and columns multiples of kLanes.
template <class T>
inline void TransposeRows(const T* from, int64_t rows, int64_t columns, int64_t from_row, T factor, T* to, int64_t to_row) {
  alignas(64) T tile[kLanes * kLanes];
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      TransposeTile(from + r * from_row + c, from_row, tile);
      for (int i = 0; i < kLanes; ++i) {
        for (int l = 0; l < kLanes; ++l) to[(c + i) * to_row + r + l] = factor * tile[i * kLanes + l];
      }
    }
  }
}

}  // namespace tandem::kernels
