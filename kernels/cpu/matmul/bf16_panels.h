// Packs rows of bf16 into panels, the operand layout of tile products (bf16_tiles.h). Rows come in
// groups of kTileUnit, and columns in multiples of kTileUnit. Inline bodies for Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/matmul/bf16_tiles.h"
#include "kernels/cpu/vector/word_tiles.h"

namespace tandem::kernels {

// Packs a group of rows as 32 depths (columns) of operand a: one panel, with one row per column of
// the group.
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
    for (int64_t i = 0; i < kTileWords; ++i)
      StoreVector(second[i], to + (kTileWords + i) * kTileDepths);
  }
}

// Packs a group of rows as rows of operand b: pairs of rows, in panels of 16 columns, `panel` words
// apart.
inline void PackRowPairs(const BFloat16* from, int64_t stride, int64_t columns, uint32_t* to,
                         int64_t panel) {
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

// Packs a group of rows as columns of operand b: two panels of 16 columns, with one row per pair of
// the group's columns.
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
