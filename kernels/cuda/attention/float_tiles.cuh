// The steps of attention in f32 arithmetic, for any storage type and head depth. A block of 16 x 16
// threads holds tiles of 64 rows of one head in shared memory. Thread (y, x) computes these parts:
// - of a tile of scores [query, key]: queries 4 y .. 4 y + 3 and keys x, x + 16, x + 32, x + 48;
// - of a tile of sums: rows 4 y .. 4 y + 3 and kDepth / 16 columns.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace tandem::kernels::cuda {

inline constexpr int kFloatRows = 64, kFloatThreads = 256, kSide = 16, kOwn = 4;
inline constexpr int kScorePitch = kFloatRows + 4;
// The distance between rows puts the 16-byte accesses of eight neighbours into different banks.
template <int kDepth>
inline constexpr int kRowPitch = kDepth + 4;
template <int kDepth>
inline constexpr int kFloatTile = kFloatRows* kRowPitch<kDepth>;
inline constexpr int kScoreTile = kFloatRows * kScorePitch;

using OwnScores = float[kOwn][kOwn];
template <int kDepth>
using OwnSums = float[kOwn][kDepth / kSide];

__device__ inline int ThreadY() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int ThreadX() { return static_cast<int>(threadIdx.x) % kSide; }

// The column of element i of this thread's sums. Runs of four columns are neighbours, or of two in
// the narrowest tile.
template <int kDepth>
__device__ inline int OwnColumn(int i) {
  constexpr int kRun = kDepth / kSide < 4 ? kDepth / kSide : 4;
  return i / kRun * kRun * kSide + ThreadX() * kRun + i % kRun;
}

__device__ inline Pack<float, 4> Four(const float* from) { return Pack<float, 4>::At(from); }

// Loads rows [first, first + 64) of a sequence's head as f32, with zeros past `length` and past the
// depth.
template <int kDepth, class S>
__device__ inline void LoadTile(const TokenRows<const S>& from, const SequenceRows& rows, int head,
                                int depth, bool packs, int first, float* tile) {
  const S* head_rows = from.At(rows.begin, head, depth);
  const int own = static_cast<int>(threadIdx.x);
  if (packs) {
#pragma unroll 2
    for (int i = own; i < kFloatRows * (kDepth / 4); i += kFloatThreads) {
      const int row = i / (kDepth / 4), d = i % (kDepth / 4) * 4;
      Pack<float, 4> x{};
      if (first + row < rows.length && d < depth) {
        const auto stored = Pack<S, 4>::At(head_rows + (first + row) * from.stride + d);
        for (int e = 0; e < 4; ++e) x.values[e] = Load(stored.values[e]);
      }
      x.Put(tile + row * kRowPitch<kDepth> + d);
    }
  } else {
#pragma unroll 2
    for (int i = own; i < kFloatRows * kDepth; i += kFloatThreads) {
      const int row = i / kDepth, d = i % kDepth;
      const bool there = first + row < rows.length && d < depth;
      tile[row * kRowPitch<kDepth> + d] =
          there ? Load(head_rows[(first + row) * from.stride + d]) : 0;
    }
  }
}

// scores = dot products of this thread's rows of two tiles.
template <int kDepth>
__device__ inline void DotProducts(const float* queries, const float* keys, int depth,
                                   OwnScores& scores) {
  const float *a = queries + kOwn * ThreadY() * kRowPitch<kDepth>,
              *b = keys + ThreadX() * kRowPitch<kDepth>;
  for (auto& row : scores) {
    for (float& score : row) score = 0;
  }
#pragma unroll 1
  for (int d = 0; d < depth; d += 4) {
    Pack<float, 4> x[kOwn], y[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = Four(a + i * kRowPitch<kDepth> + d);
#pragma unroll
    for (int j = 0; j < kOwn; ++j) y[j] = Four(b + kSide * j * kRowPitch<kDepth> + d);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j)
          scores[i][j] = fmaf(x[i].values[e], y[j].values[e], scores[i][j]);
      }
    }
  }
}

__device__ inline void PutScores(const OwnScores& scores, float* tile) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      tile[(kOwn * ThreadY() + i) * kScorePitch + ThreadX() + kSide * j] = scores[i][j];
  }
}

// sums += weights[i] times this thread's columns of a row.
template <int kDepth>
__device__ inline void AddRow(const float (&weights)[kOwn], const float* row,
                              OwnSums<kDepth>& sums) {
  constexpr int kColumns = kDepth / kSide, kRun = kColumns < 4 ? kColumns : 4;
#pragma unroll
  for (int c = 0; c < kColumns; c += kRun) {
    const auto x = Pack<float, kRun>::At(row + OwnColumn<kDepth>(c));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int e = 0; e < kRun; ++e) sums[i][c + e] = fmaf(weights[i], x.values[e], sums[i][c + e]);
    }
  }
}

// sums += scores (rows 4 y .. 4 y + 3) times the first `count` rows of a tile. Scores past `count`
// are 0.
template <int kDepth>
__device__ inline void AddWeightedRows(const float* scores, const float* tile, int count,
                                       OwnSums<kDepth>& sums) {
  const float* own = scores + kOwn * ThreadY() * kScorePitch;
#pragma unroll 1
  for (int k = 0; k < count; k += 4) {
    Pack<float, 4> x[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = Four(own + i * kScorePitch + k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float weights[kOwn] = {x[0].values[e], x[1].values[e], x[2].values[e], x[3].values[e]};
      AddRow<kDepth>(weights, tile + (k + e) * kRowPitch<kDepth>, sums);
    }
  }
}

// sums += scores' (columns 4 y .. 4 y + 3) times the first `count` rows of a tile.
template <int kDepth>
__device__ inline void AddWeightedRowsTransposed(const float* scores, const float* tile, int count,
                                                 OwnSums<kDepth>& sums) {
#pragma unroll 4
  for (int k = 0; k < count; ++k) {
    AddRow<kDepth>(Four(scores + k * kScorePitch + kOwn * ThreadY()).values,
                   tile + k * kRowPitch<kDepth>, sums);
  }
}

// Stores row i of this thread's sums, times factors[i], to its token.
template <int kDepth, class S>
__device__ inline void StoreRows(const OwnSums<kDepth>& sums, const float (&factors)[kOwn],
                                 const TokenRows<S>& to, const SequenceRows& rows, int head,
                                 int depth, bool packs) {
  constexpr int kRun = kDepth / kSide < 4 ? kDepth / kSide : 4;
  S* head_rows = to.At(rows.begin, head, depth);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int position = rows.first + kOwn * ThreadY() + i;
    if (position >= rows.length) return;
#pragma unroll
    for (int c = 0; c < kDepth / kSide; c += kRun) {
      const int d = OwnColumn<kDepth>(c);
      Pack<S, kRun> pack;
      for (int e = 0; e < kRun; ++e) pack.values[e] = Store<S>(factors[i] * sums[i][c + e]);
      S* own = head_rows + position * to.stride + d;
      if (packs && d < depth) pack.Put(own);
      for (int e = 0; !packs && e < kRun && d + e < depth; ++e) own[e] = pack.values[e];
    }
  }
}

// True if the query at position `query` sees the key at position `key`.
__device__ inline bool Sees(const SequenceRows& rows, bool causal, int query, int key) {
  return key < rows.length && (!causal || key <= query);
}

// Bit 4 i + j is set if dropout keeps score [i][j] of this thread. Each lane draws 16 keys of one
// of its warp's eight queries. The bits of its own pairs come from eight other lanes.
__device__ inline uint32_t KeptPairs(const AttentionShape& shape, const SequenceRows& rows,
                                     int head, int query, int key) {
  constexpr int kWarpQueries = kWarp / kSide * kOwn;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const KeyRun run = FindKeyRun(shape, rows.begin + key,
                                rows.length - key < kFloatRows ? rows.length - key : kFloatRows);
  const int wanted = query + static_cast<int>(threadIdx.x) / kWarp * kWarpQueries + lane / kOwn;
  const int position = wanted < rows.length ? wanted : rows.length - 1;
  const uint32_t drawn =
      KeptBits<kSide>(shape, rows.begin + position, head, run, kSide * (lane % kOwn));
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const uint32_t bits = __shfl_sync(kAllLanes, drawn, (lane / kSide * kOwn + i) * kOwn + j);
      kept |= (bits >> ThreadX() & 1) << (kOwn * i + j);
    }
  }
  return kept;
}

}  // namespace tandem::kernels::cuda
