#include "kernels/cpu/matmul/split_matmul.h"

#include <algorithm>

#include "kernels/cpu/matmul/bf16_tiles.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cpu/vector/word_tiles.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kHalf = kSplitUnit / 2;  // columns of a tile
static_assert(kSplitUnit == kTileUnit);
constexpr int64_t kHalfElements = kHalf * kSplitUnit, kPieceElements = 2 * kHalfElements;
typedef float Floats __attribute__((vector_size(64)));

// Splits 16 numbers into three pieces, each in the upper half of its word: x = high + middle + low.
inline void SplitNumbers(const Words& x, Words (&pieces)[kSplitPieces]) {
  constexpr uint32_t kRound = 0x8000, kUpper = 0xffff0000;
  pieces[0] = (x + kRound) & kUpper;
  const Floats rest = (Floats)x - (Floats)pieces[0];
  pieces[1] = ((Words)rest + kRound) & kUpper;
  pieces[2] = (Words)(rest - (Floats)pieces[1]);
}

// Packs the upper halves of lane j of `even` and `odd` into one word, for every j.
inline void PairLanes(const Words& even, const Words& odd, Words& pairs) {
  pairs = (even >> 16) | (odd & 0xffff0000u);
}

// Packs the upper halves of lanes 2j and 2j + 1 into one word: first the lanes of a, then of b.
inline void PairNeighbours(const Words& a, const Words& b, Words& pairs) {
  Halves upper;
  for (uint16_t j = 0; j < 32; ++j) upper[j] = static_cast<uint16_t>(2 * j + 1);
  pairs = (Words)__builtin_shuffle((Halves)a, (Halves)b, upper);
}

// A corner of x: 16 columns and 32 depths, of which `columns` and `depths` exist.
struct Corner {
  const float* from;
  int64_t stride, columns, depths;
};

// Vector i of the corner's tiles if depths are contiguous: the depths of column i.
template <bool kWhole>
inline void SplitColumn(const Corner& x, int64_t i, Words (&pieces)[kSplitPieces]) {
  const float* column = x.from + i * x.stride;
  const int64_t bytes = kWhole ? 128 : i < x.columns ? x.depths * 4 : 0;
  Words left, right, left_pieces[kSplitPieces], right_pieces[kSplitPieces];
  LoadStart(column, bytes, left);
  LoadStart(column + kTileWords, bytes - 64, right);
  SplitNumbers(left, left_pieces);
  SplitNumbers(right, right_pieces);
  for (int p = 0; p < kSplitPieces; ++p) PairNeighbours(left_pieces[p], right_pieces[p], pieces[p]);
}

// Vector i of the corner's tiles if columns are contiguous: depths 2i and 2i + 1 of all columns.
template <bool kWhole>
inline void SplitDepths(const Corner& x, int64_t i, Words (&pieces)[kSplitPieces]) {
  const float* row = x.from + 2 * i * x.stride;
  Words even, odd, even_pieces[kSplitPieces], odd_pieces[kSplitPieces];
  LoadStart(row, kWhole ? 64 : 2 * i < x.depths ? x.columns * 4 : 0, even);
  LoadStart(row + x.stride, kWhole ? 64 : 2 * i + 1 < x.depths ? x.columns * 4 : 0, odd);
  SplitNumbers(even, even_pieces);
  SplitNumbers(odd, odd_pieces);
  for (int p = 0; p < kSplitPieces; ++p) PairLanes(even_pieces[p], odd_pieces[p], pieces[p]);
}

template <bool kTransposed, bool kWhole, class Store>
inline void SplitVectors(const Corner& x, const Store& store) {
#pragma GCC unroll 2
  for (int64_t i = 0; i < kTileWords; ++i) {
    Words pieces[kSplitPieces];
    if constexpr (kTransposed) {
      __builtin_prefetch(x.from + (i + kHalf) * x.stride, 0, 2);  // the next corner's columns
      __builtin_prefetch(x.from + (i + kHalf) * x.stride + kTileWords, 0, 2);
      SplitColumn<kWhole>(x, i, pieces);
    } else {
      __builtin_prefetch(x.from + 2 * i * x.stride + kHalf, 0, 2);
      __builtin_prefetch(x.from + (2 * i + 1) * x.stride + kHalf, 0, 2);
      SplitDepths<kWhole>(x, i, pieces);
    }
    for (int p = 0; p < kSplitPieces; ++p) store(p, i, pieces[p]);
  }
}

template <bool kTransposed, class Store>
inline void SplitCorner(const Corner& x, const Store& store) {
  if (x.columns >= kHalf && x.depths >= kSplitUnit)
    SplitVectors<kTransposed, true>(x, store);
  else
    SplitVectors<kTransposed, false>(x, store);
}

// Writes the tiles of a corner, for all three pieces.
template <bool kTransposed, bool kTurned>
inline void SplitTiles(const Corner& x, BFloat16* tile) {
  const auto store = [=](int p, int64_t i, const Words& row) {
    StoreVector(row, tile + p * kPieceElements + i * kSplitUnit);
  };
  if constexpr (!kTurned) return SplitCorner<kTransposed>(x, store);
  Words rows[kSplitPieces][kTileWords];
  SplitCorner<kTransposed>(x, [&](int p, int64_t i, const Words& row) { rows[p][i] = row; });
  for (int p = 0; p < kSplitPieces; ++p) {
    TransposeWords(rows[p]);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileWords; ++i) store(p, i, rows[p][i]);
  }
}

template <bool kTransposed, bool kTurned>
void SplitAll(const StoredMatrix<float>& x, int64_t first, int64_t count, int64_t depth,
              BFloat16* to) {
  Vectorised([=] {
    for (int64_t c = 0; c < RoundUp(count, kSplitUnit); c += kHalf) {
      BFloat16* half = to + c / kSplitUnit * kSplitUnit * depth * kSplitPieces +
                       c % kSplitUnit / kHalf * kHalfElements;
      for (int64_t d = 0; d < depth; d += kSplitUnit) {
        const float* from =
            x.data + (kTransposed ? (first + c) * x.stride + d : d * x.stride + first + c);
        SplitTiles<kTransposed, kTurned>({from, x.stride, count - c, x.k - d},
                                         half + d * kSplitUnit * kSplitPieces);
      }
    }
  });
}

constexpr int64_t kLineElements = 32;
// At 64 the faster products do not pay for the pieces and their memory.
constexpr int64_t kMinColumns = 128, kMinDepth = 128;

// A block of 32 x 32 elements, which may reach past the end of c.
struct Place {
  int64_t row, column, rows, columns;
};

void StoreBlock(const float* sums, const Place& place, const SplitTarget& target) {
  float* c = target.c + place.row * target.c_row + place.column;
  const float* bias = target.bias == nullptr ? nullptr : target.bias + place.column;
  Vectorised([=, accumulate = target.accumulate, c_row = target.c_row, rows = place.rows,
              columns = place.columns] {
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = sums + r * kSplitUnit;
      float* to = c + r * c_row;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) {
        float sum = from[j];
        if (bias != nullptr) sum += bias[j];
        to[j] = accumulate ? to[j] + sum : sum;
      }
    }
  });
}

}  // namespace

bool UsesSplitProducts(int64_t n, int64_t k) {
  return n >= kMinColumns && k >= kMinDepth && HasFastTiles();
}

void SplitOperand(SplitSide side, const StoredMatrix<float>& x, int64_t first, int64_t count,
                  int64_t depth, BFloat16* to) {
  depth = RoundUp(depth, kSplitUnit);
  const bool a = side == SplitSide::A;
  if (x.transposed)
    (a ? SplitAll<true, false> : SplitAll<true, true>)(x, first, count, depth, to);
  else
    (a ? SplitAll<false, true> : SplitAll<false, false>)(x, first, count, depth, to);
}

void SplitProduct(int64_t m, int64_t n, int64_t depth, const BFloat16* a, const BFloat16* b,
                  int64_t b_step, const SplitTarget& target) {
  const TileState tiles;
  const int64_t groups = RoundUp(depth, kSplitUnit) / kSplitUnit,
                step = SplitSize(kSplitUnit, depth), c_row = target.c_row;
  const int64_t row_groups = (m + kSplitUnit - 1) / kSplitUnit,
                soon = RoundUp(step / row_groups, kLineElements);
  const bool plain = target.bias == nullptr && !target.accumulate;
  alignas(64) float sums[kSplitUnit * kSplitUnit];
  for (int64_t j = 0; j < n; j += kSplitUnit, b += b_step) {
    for (int64_t i = 0; i < m; i += kSplitUnit) {
      const Place place{i, j, std::min(kSplitUnit, m - i), std::min(kSplitUnit, n - j)};
      const bool in_place = plain && place.rows == kSplitUnit && place.columns == kSplitUnit;
      float* c = in_place ? target.c + i * c_row + j : sums;
      // The next columns; each block prefetches a part.
      const BFloat16* next = b + b_step + i / kSplitUnit * soon;
      tiles.SplitProduct(
          groups, a + i / kSplitUnit * step, b, c, in_place ? c_row : kSplitUnit,
          {next, j + kSplitUnit < n ? soon * static_cast<int64_t>(sizeof(BFloat16)) : 0});
      if (!in_place) StoreBlock(sums, place, target);
    }
  }
}

void SplitProduct(int64_t m, const BFloat16* a, const StoredMatrix<float>& b,
                  const SplitTarget& target) {
  BFloat16* pieces =
      Scratch<BFloat16>(ScratchSlot::LIBRARY, SplitSize(std::min(b.n, kSplitBlockColumns), b.k));
  for (int64_t j = 0; j < b.n; j += kSplitBlockColumns) {
    const int64_t columns = std::min(kSplitBlockColumns, b.n - j);
    SplitOperand(SplitSide::B, b, j, columns, b.k, pieces);
    SplitTarget block = target;
    block.c += j;
    if (block.bias != nullptr) block.bias += j;
    SplitProduct(m, columns, b.k, a, pieces, SplitSize(kSplitUnit, b.k), block);
  }
}

}  // namespace tandem::kernels
