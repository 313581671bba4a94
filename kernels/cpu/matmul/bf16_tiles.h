// Products of bf16 matrices with sums in f32, for operands too small for a library's call: in the tile registers of AMX (Intel's Advanced
// Matrix Extensions), or in the dot products of AVX-512 BF16. Each element of c adds its terms in ascending depth, pair by pair or 32 by
// 32, so that the position of a tile does not show in its bits. Thread rule: any; TileState belongs to the thread that made it.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/vector/row_prefetch.h"

namespace tandem::kernels {

// Whether processor and system have AMX for this process. Always false in builds with sanitizers.
bool HasAmx();
// Whether this thread multiplies in tiles: the best that the processor has and the thread's limit allows (vectorise.h).
bool UsesTiles();

// Whether these tiles multiply so fast that f32 in three pieces gains (split_matmul.h): AMX's, and plain ones for tests.
bool HasFastTiles();

// Rows, columns and depths of a product come in multiples of this.
inline constexpr int64_t kTileUnit = 32;

// c [rows, columns] = a [rows, depth] b [depth, columns], plus the old c if asked. Operands lie in panels: a's of kTileDepths depths, a_panel
// elements apart, with rows a_row apart; b's of kTileColumns columns, b_panel words apart, in pairs, dense rows p with elements 2p (lower
// half) and 2p + 1 of every column. Rows of c lie c_row elements apart.
// Rows of an a in scratch had better be dense too: those a power of 2 apart compete for the same places in the first cache.
inline constexpr int64_t kTileDepths = 32, kTileColumns = 16;
struct TileOperands {
  const BFloat16* a;
  int64_t a_row, a_panel;
  const uint32_t* b;
  int64_t b_panel;
  float* c;
  int64_t c_row;
};

// A quarter of kTileUnit^3 multiply-adds is a piece of arithmetic to a RowPrefetch.
inline constexpr int64_t kTilePiece = kTileUnit * kTileUnit * kTileUnit / 4;

// Memory that will soon be read.
struct FetchSoon {
  const void* first = nullptr;
  int64_t num_bytes = 0;
};

enum class TileKind { NONE, PLAIN, DOT_PRODUCTS, AMX };

// While one lives, the calling thread may multiply by it; afterwards AMX's tiles are configured as before. REQUIRES: UsesTiles().
class TileState {
 public:
  TileState();
  ~TileState();
  TileState(const TileState&) = delete;
  TileState& operator=(const TileState&) = delete;

  // REQUIRES: rows, columns and depth multiples of kTileUnit.
  void Product(int64_t rows, int64_t columns, int64_t depth, const TileOperands& operands, bool accumulate, RowPrefetch& prefetch) const;
  // c [32, 32] = a b of f32 in three pieces as split_matmul.h describes, of 32 `groups` depths. c's rows lie c_row elements apart. Meanwhile
  // the lines of `soon` are fetched into the second cache. REQUIRES: HasFastTiles().
  void SplitProduct(int64_t groups, const BFloat16* a, const BFloat16* b, float* c, int64_t c_row, FetchSoon soon) const;

 private:
  alignas(64) char previous_[64];
  const TileKind kind_;
};

}  // namespace tandem::kernels
