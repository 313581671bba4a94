// Products of bf16 matrices with sums in f32, for operands too small for a library's call: in the tile registers of AMX (Intel's Advanced
// Matrix Extensions), or in the dot products of AVX-512 BF16. Each element of c adds its terms in ascending depth, pair by pair or 32 by
// 32, so that the position of a tile does not show in its bits. Thread rule: any; TileState belongs to the thread that made it.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/row_prefetch.h"

namespace tandem::kernels {

// Whether processor and system have AMX for this process. Always false in builds with sanitizers.
bool HasAmx();
// Whether this thread multiplies in tiles: the best that the processor has and the thread's limit allows (vectorise.h).
bool UsesTiles();

// Whether these tiles multiply so fast that f32 in three pieces gains (split_matmul.h): AMX's, and plain ones for tests.
bool HasFastTiles();

// While one lives, the calling thread may call TileProduct and SplitTileProduct; afterwards AMX's tiles are configured as before.
// REQUIRES: UsesTiles().
class TileState {
 public:
  TileState();
  ~TileState();
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;

 private:
  alignas(64) char previous_[64];
  const bool configured_;
};

// Rows of rows, columns and depth that a TileProduct takes.
inline constexpr int64_t kTileUnit = 32;

// c [rows, columns] = a [rows, depth] b [depth, columns], plus the old c if asked. b holds pairs: row p has elements 2p (lower half)
// and 2p + 1 of every column. Rows lie a_row, b_row and c_row elements apart.
struct TileOperands {
  const BFloat16* a;
  int64_t a_row;
  const uint32_t* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
};
// REQUIRES: rows, columns and depth multiples of kTileUnit; a TileState on this thread. A quarter of kTileUnit^3 multiply-adds is a
// piece of arithmetic to `prefetch`.
inline constexpr int64_t kTilePiece = kTileUnit * kTileUnit * kTileUnit / 4;
void TileProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& operands, bool accumulate, RowPrefetch& prefetch);

// Memory that will soon be read.
struct FetchSoon {
  const void* first = nullptr;
  int64_t num_bytes = 0;
};

// c [32, 32] = a b of f32 in three pieces as split_matmul.h describes, of 32 `groups` depths. c's rows lie c_row elements apart. Meanwhile
// the lines of `soon` are fetched into the second cache. REQUIRES: a TileState on this thread.
void SplitTileProduct(int64_t groups, const BFloat16* a, const BFloat16* b, float* c, int64_t c_row, FetchSoon soon);

}  // namespace tandem::kernels
