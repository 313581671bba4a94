// Rows of bf16 as operands of products in tiles (bf16_tiles.h), which lie in panels. Rows come in groups of kTileUnit, columns in multiples of
// it. Inline bodies for Vectorised().
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/matmul/bf16_tiles.h"
#include "kernels/cpu/vector/word_tiles.h"

namespace tandem::kernels {

// A group of rows as columns of a, whose depths they are: one panel, a row for each of their columns.
inline void PackColumns(const BFloat16* from, int64_t stride, int64_t columns, BFloat16* to) {
  for (int64_t c = 0; c < columns; c += kTileUnit, to += kTileUnit * kTileDepths) {
    Words first[kTileWords], second[kTileWords];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileWords; ++i) {
      Words lower, upper;
      LoadVector(from + 2 * i * stride + c, lower);
      LoadVector(from + (2 * i + 1) * stride + c, upper);
      Interleave(lower, upper, first[i], second[i]);
    }
    TransposeWords(first);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileWords; ++i) StoreVector(first[i], to + i * kTileDepths);
    TransposeWords(second);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileWords; ++i) StoreVector(second[i], to + (kTileWords + i) * kTileDepths);
  }
}

// A group of rows as rows of b, pairs of rows in panels of 16 columns, `panel` words apart.
inline void PackRowPairs(const BFloat16* from, int64_t stride, int64_t columns, uint32_t* to, int64_t panel) {
  for (int64_t c = 0; c < columns; c += kTileUnit, to += 2 * panel) {
    for (int64_t r = 0; r < kTileUnit; r += 2) {
      Words lower, upper, first, second;
      LoadVector(from + r * stride + c, lower);
      LoadVector(from + (r + 1) * stride + c, upper);
      Interleave(lower, upper, first, second);
      StoreVector(first, to + r / 2 * kTileColumns);
      StoreVector(second, to + panel + r / 2 * kTileColumns);
    }
  }
}

// A group of rows as columns of b: two panels of 16, a row for each pair of their columns.
inline void PackColumnPairs(const BFloat16* from, int64_t stride, int64_t columns, uint32_t* to) {
  for (int64_t r = 0; r < kTileUnit; r += kTileColumns) {
    for (int64_t c = 0; c < columns; c += 2 * kTileWords, to += kTileWords * kTileColumns) {
      Words tile[kTileWords];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kTileWords; ++i) LoadVector(from + (r + i) * stride + c, tile[i]);
      TransposeWords(tile);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kTileWords; ++i) StoreVector(tile[i], to + i * kTileColumns);
    }
  }
}

}  // namespace tandem::kernels
