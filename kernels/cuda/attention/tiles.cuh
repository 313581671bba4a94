// The steps of bf16 attention in tensor cores. A block of four warps holds tiles of rows of one
// head in shared memory. A warp owns 16 kTiles of the block's rows. Their scores and sums stay in
// registers, in the layout of MmaBf16's c.
// For lane 4 g + t, element [m][n][2 r + i] is row 16 m + 8 r + g, column 8 n + 2 t + i.
// Scores are rounded to bf16 when they become operands.
#pragma once

#include "kernels/cuda/attention/problem.cuh"
#include "kernels/cuda/attention/tensor_core.cuh"

namespace tandem::kernels::cuda {

inline constexpr int kTileWarps = 4, kTileThreads = kTileWarps * kWarp;

template <int kTiles, int kColumns>
using TileSums = float[kTiles][kColumns / 8][4];

__device__ inline int Lane() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ inline int WarpOfBlock() { return static_cast<int>(threadIdx.x / kWarp); }
// g and 2 t of the fragments.
__device__ inline int LaneRow() { return Lane() / 4; }
__device__ inline int LaneColumn() { return Lane() % 4 * 2; }

// Starts copies of rows [first, first + kRows) of a sequence's head, each array into the next tile.
// Writes zeros past `length` and past the head's depth.
template <int kDepth, int kRows, class... Arrays>
__device__ inline void FetchTiles(const SequenceRows& rows, int head, int depth, int first,
                                  BFloat16* tiles, const Arrays&... from) {
  constexpr int kChunks = kDepth / 8;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kTileThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool there = first + row < rows.length && chunk * 8 < depth;
    const int64_t token = rows.begin + (there ? first + row : 0);
    BFloat16* to = tiles + Swizzle<kDepth>::At(row, chunk);
    ((CpAsync16(to, from.At(token, head, depth) + (there ? chunk * 8 : 0), there),
      to += kRows * kDepth),
     ...);
  }
}

template <int kTiles, int kColumns>
__device__ inline void SetZero(TileSums<kTiles, kColumns>& x) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[m][n][e] = 0;
    }
  }
}

// scores = dot products of tile a's rows from `row` on with all kColumns rows of tile b.
template <int kDepth, int kTiles, int kColumns>
__device__ inline void DotProducts(const BFloat16* a, int row, const BFloat16* b,
                                   TileSums<kTiles, kColumns>& scores) {
  SetZero<kTiles, kColumns>(scores);
  const int lane = Lane(), a_row = row + lane % 16, a_chunk = lane / 16,
            b_row = lane % 8 + lane / 16 * 8, b_chunk = lane / 8 % 2;
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      LdMatrix(left[m], a + Swizzle<kDepth>::Beyond(a_row, a_chunk, 16 * m, 2 * k));
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      uint32_t right[4];
      LdMatrix(right, b + Swizzle<kDepth>::Beyond(b_row, b_chunk, 16 * n, 2 * k));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        MmaBf16(scores[m][2 * n], left[m], right[0], right[1]);
        MmaBf16(scores[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// sums += weights times the kInner rows of tile b. Columns 16 k .. 16 k + 15 of the weights,
// rounded, are already in the register layout of an operand.
template <int kDepth, int kTiles, int kInner>
__device__ inline void AddWeightedRows(const TileSums<kTiles, kInner>& weights, const BFloat16* b,
                                       TileSums<kTiles, kDepth>& sums) {
  const int lane = Lane(), b_row = lane % 16, b_chunk = lane / 16;
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&columns)[4] = weights[m][2 * k + i / 2];
        left[m][i] = PackBf16(columns[i % 2 * 2], columns[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kDepth / 16; ++n) {
      uint32_t right[4];
      LdMatrixTransposed(right, b + Swizzle<kDepth>::Beyond(b_row, b_chunk, 16 * k, 2 * n));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        MmaBf16(sums[m][2 * n], left[m], right[0], right[1]);
        MmaBf16(sums[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Sets scores to minus infinity for keys that do not exist or, if causal, come after the query.
// This lane's first query (row) is at position `query`, its first key (column) at position `key`.
template <int kTiles, int kKeys>
__device__ inline void HideKeys(const SequenceRows& rows, bool causal, int query, int key,
                                TileSums<kTiles, kKeys>& scores) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int later = query + 16 * m + 8 * r + 1,
                end = causal && later < rows.length ? later : rows.length;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (key + 8 * n + i >= end) scores[m][n][2 * r + i] = -INFINITY;
        }
      }
    }
  }
}

// The dropout mask of the warp's queries (rows) and a tile's keys (columns). Each lane draws half
// of the keys of kTiles queries and gets other bits from other lanes. So every Philox block is
// drawn once.
template <int kTiles, int kKeys>
class KeptKeys {
 public:
  static constexpr int kHalf = kKeys / 2;

  // Covers the queries from position `query` and the keys from position `key` on.
  __device__ KeptKeys(const AttentionShape& shape, const SequenceRows& rows, int head, int query,
                      int key) {
    const KeyRun run =
        FindKeyRun(shape, rows.begin + key, rows.length - key < kKeys ? rows.length - key : kKeys);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const int wanted = query + 16 * m + Lane() % 16,
                position = wanted < rows.length ? wanted : rows.length - 1;
      const uint32_t drawn =
          KeptBits<kHalf>(shape, rows.begin + position, head, run, Lane() / 16 * kHalf);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          bits_[m][r][half] =
              __shfl_sync(kAllLanes, drawn, LaneRow() + 8 * r + 16 * half) >> LaneColumn();
        }
      }
    }
  }

  __device__ bool At(int m, int n, int element) const {
    return bits_[m][element / 2][n * 8 / kHalf] >> (n * 8 % kHalf + element % 2) & 1;
  }

 private:
  uint32_t bits_[kTiles][2][2];
};

// Stores the warp's sums as bf16, row [m][r] times factors[m][r]. The targets are the tokens of the
// block's rows from `row` on. Uses those rows of the tile as a buffer.
// REQUIRES: no other warp reads those rows of the tile.
template <int kDepth, int kTiles>
__device__ inline void StoreRows(const TileSums<kTiles, kDepth>& sums,
                                 const float (&factors)[kTiles][2], BFloat16* tile, int row,
                                 const TokenRows<BFloat16>& to, const SequenceRows& rows, int head,
                                 int depth) {
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int n = 0; n < kDepth / 8; ++n) {
        BFloat16* pair =
            tile + Swizzle<kDepth>::At(row + 16 * m + 8 * r + LaneRow(), n) + LaneColumn();
        *reinterpret_cast<uint32_t*>(pair) =
            PackBf16(factors[m][r] * sums[m][n][2 * r], factors[m][r] * sums[m][n][2 * r + 1]);
      }
    }
  }
  __syncwarp();
  constexpr int kChunks = kDepth / 8;
  BFloat16* head_rows = to.At(rows.begin, head, depth);
#pragma unroll
  for (int i = Lane(); i < 16 * kTiles * kChunks; i += kWarp) {
    const int tile_row = row + i / kChunks, chunk = i % kChunks, position = rows.first + tile_row;
    if (position < rows.length && chunk * 8 < depth) {
      const auto* from =
          reinterpret_cast<const uint4*>(tile + Swizzle<kDepth>::At(tile_row, chunk));
      *reinterpret_cast<uint4*>(head_rows + position * to.stride + chunk * 8) = *from;
    }
  }
}

// Calls body with the smallest compiled kDepth that holds the head.
template <class Body>
void WithPaddedDepth(int64_t depth, const Body& body) {
  switch (PaddedDepth(depth)) {
    case 16:
      return body(std::integral_constant<int, 16>{});
    case 32:
      return body(std::integral_constant<int, 32>{});
    case 64:
      return body(std::integral_constant<int, 64>{});
    case 96:
      return body(std::integral_constant<int, 96>{});
    default:
      return body(std::integral_constant<int, 128>{});
  }
}

}  // namespace tandem::kernels::cuda
