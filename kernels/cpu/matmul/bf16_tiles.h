// Products of bf16 matrices with f32 sums, for operands too small for a library call. Uses the tile
// registers of AMX (Intel's Advanced Matrix Extensions), or dot products of AVX-512 BF16. Each
// element of c adds its terms in ascending depth, pair by pair or 32 by 32. So its bits do not
// depend on a tile's position.
// Thread rule: any; a TileState belongs to the thread that made it.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/vector/row_prefetch.h"

namespace tandem::kernels {

// True if processor and system offer AMX to this process. Always false in sanitizer builds.
bool HasAmx();
// True if this thread multiplies in tiles: the processor has AMX or AVX-512 BF16 and the thread's
// limit (vectorise.h) allows it.
bool UsesTiles();

// True if tiles are fast enough for f32 products in three pieces (split_matmul.h): AMX, or plain
// tiles for tests.
bool HasFastTiles();

// Rows, columns and depths of a product are multiples of kTileUnit.
inline constexpr int64_t kTileUnit = 32;

// c [rows, columns] = a [rows, depth] b [depth, columns], plus the old c if asked. Operands lie in
// panels:
// - a: panels of kTileDepths depths, a_panel elements apart, with rows a_row elements apart;
// - b: panels of kTileColumns columns, b_panel words apart. Dense row p of a panel holds, per
// column, elements 2p (lower half) and 2p + 1.
// Rows of c lie c_row elements apart. Keep rows of an a in scratch dense: rows a power of 2 apart
// compete for the same L1 sets.
inline constexpr int64_t kTileDepths = 32, kTileColumns = 16;
struct TileOperands {
  const BFloat16* a;
  int64_t a_row, a_panel;
  const uint32_t* b;
  int64_t b_panel;
  float* c;
  int64_t c_row;
};

// Multiply-adds of one piece of arithmetic, the unit of a RowPrefetch.
inline constexpr int64_t kTilePiece = kTileUnit * kTileUnit * kTileUnit / 4;

// Memory that will soon be read.
struct FetchSoon {
  const void* first = nullptr;
  int64_t num_bytes = 0;
};

enum class TileKind { NONE, PLAIN, DOT_PRODUCTS, AMX };

// Lets the calling thread multiply in tiles while it lives. The destructor restores AMX's previous
// tile configuration.
// REQUIRES: UsesTiles().
class TileState {
 public:
  TileState();
  ~TileState();
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;

  // Computes one product.
  // REQUIRES: rows, columns and depth are multiples of kTileUnit.
  void Product(int64_t rows, int64_t columns, int64_t depth, const TileOperands& operands,
               bool accumulate, RowPrefetch& prefetch) const;
  // c [32, 32] = a b of f32 in three pieces (split_matmul.h), over `groups` groups of 32 depths.
  // Rows of c lie c_row elements apart. Meanwhile prefetches the lines of `soon` into L2.
  // REQUIRES: HasFastTiles().
  void SplitProduct(int64_t groups, const BFloat16* a, const BFloat16* b, float* c, int64_t c_row,
                    FetchSoon soon) const;

 private:
  alignas(64) char previous_[64];
  const TileKind kind_;
};

}  // namespace tandem::kernels
