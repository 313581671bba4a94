#include "kernels/cuda/attention/tiles.cuh"

// FlashAttention-2 (Dao 2023) with mma.sync. A block owns queries of one head and walks over the
// keys, tile by tile, while the next tile arrives. A row's bits depend on its sequence alone: tiles
// of keys have one size and begin with the sequence.
namespace tandem::kernels::cuda {

namespace {

constexpr int kKeys = 64;  // keys of a tile

// Per row of the warp: the running maximum of scores, and this lane's share of the sum of 2^(scale
// (score - maximum)).
template <int kTiles>
struct OnlineSoftmax {
  float max[kTiles][2], sum[kTiles][2];

  __device__ OnlineSoftmax() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      max[m][0] = max[m][1] = -INFINITY;
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Turns scores into exponentials, and scales the output so far to the new maximum. Every row has
  // a finite maximum after the first tile, because every query sees key 0.
  template <int kDepth>
  __device__ void Add(float scale, TileSums<kTiles, kKeys>& scores,
                      TileSums<kTiles, kDepth>& output) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float top = max[m][r];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          top = fmaxf(top, fmaxf(scores[m][n][2 * r], scores[m][n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
        const float shrink = FastExp2((max[m][r] - top) * scale), shift = -top * scale;
        float added = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e) {
            scores[m][n][e] = FastExp2(fmaf(scores[m][n][e], scale, shift));
            added += scores[m][n][e];
          }
        }
        max[m][r] = top;
        sum[m][r] = fmaf(sum[m][r], shrink, added);
#pragma unroll
        for (int n = 0; n < kDepth / 8; ++n) {
          output[m][n][2 * r] *= shrink;
          output[m][n][2 * r + 1] *= shrink;
        }
      }
    }
  }

  // Sums whole rows, in every lane.
  __device__ void Finish() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        sum[m][r] += __shfl_xor_sync(kAllLanes, sum[m][r], 1);
        sum[m][r] += __shfl_xor_sync(kAllLanes, sum[m][r], 2);
      }
    }
  }
};

template <int kTiles>
__device__ inline void DropKeys(const AttentionShape& shape, const SequenceRows& rows, int head,
                                int query, int key, TileSums<kTiles, kKeys>& weights) {
  const KeptKeys<kTiles, kKeys> kept(shape, rows, head, query, key);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) weights[m][n][e] = kept.At(m, n, e) ? weights[m][n][e] : 0;
    }
  }
}

template <int kDepth, int kTiles>
__device__ inline void StoreOutput(const ForwardProblem<BFloat16>& p, const SequenceRows& rows,
                                   int head, int row, OnlineSoftmax<kTiles>& softmax,
                                   const TileSums<kTiles, kDepth>& output, BFloat16* tile) {
  softmax.Finish();
  float factors[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[m][r] = p.shape.mask.keep_scale / softmax.sum[m][r];
      const int position = rows.first + row + 16 * m + 8 * r + LaneRow();
      if (LaneColumn() == 0 && position < rows.length) {
        p.log_sum_exp[(rows.begin + position) * p.shape.num_heads + head] =
            softmax.max[m][r] * p.shape.score_scale + log2f(softmax.sum[m][r]);
      }
    }
  }
  StoreRows<kDepth, kTiles>(output, factors, tile, row, p.output, rows, head, p.shape.depth);
}

template <int kDepth, int kTiles, bool kDropout>
__global__ void __launch_bounds__(kTileThreads) ForwardKernel(ForwardProblem<BFloat16> p) {
  constexpr int kRows = 16 * kTiles * kTileWarps, kKeyTile = kKeys * kDepth;
  const SequenceRows rows = FindRows<kRows>(p.shape, p.shape.causal);
  if (rows.empty()) return;
  const int head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth;
  BFloat16* const queries = SharedMemory<BFloat16>();
  BFloat16* const keys = queries + kRows * kDepth;  // two tiles of keys and values, used in turn
  const int row = WarpOfBlock() * 16 * kTiles, query = rows.first + row,
            last_query = query + 16 * kTiles - 1;
  const int end =
      p.shape.causal && rows.first + kRows < rows.length ? rows.first + kRows : rows.length;
  FetchTiles<kDepth, kRows>(rows, head, depth, rows.first, queries, p.q);
  FetchTiles<kDepth, kKeys>(rows, key_head, depth, 0, keys, p.k, p.v);
  CpAsyncCommit();
  TileSums<kTiles, kDepth> output;
  SetZero<kTiles, kDepth>(output);
  OnlineSoftmax<kTiles> softmax;
  for (int key = 0; key < end; key += kKeys) {
    const BFloat16* const tile = keys + key / kKeys % 2 * 2 * kKeyTile;
    CpAsyncWait<0>();
    __syncthreads();  // the tile has arrived, and nobody reads the other one
    if (key + kKeys < end) {
      FetchTiles<kDepth, kKeys>(rows, key_head, depth, key + kKeys,
                                keys + (key / kKeys + 1) % 2 * 2 * kKeyTile, p.k, p.v);
      CpAsyncCommit();
    }
    if (query >= rows.length || (p.shape.causal && key > last_query)) continue;
    TileSums<kTiles, kKeys> scores;
    DotProducts<kDepth, kTiles, kKeys>(queries, row, tile, scores);
    if (key + kKeys > rows.length || (p.shape.causal && key + kKeys - 1 > query)) {
      HideKeys<kTiles, kKeys>(rows, p.shape.causal, query + LaneRow(), key + LaneColumn(), scores);
    }
    softmax.template Add<kDepth>(p.shape.score_scale, scores, output);
    if (kDropout) DropKeys<kTiles>(p.shape, rows, head, query, key, scores);
    AddWeightedRows<kDepth, kTiles, kKeys>(scores, tile + kKeyTile, output);
  }
  if (query >= rows.length) return;
  StoreOutput<kDepth, kTiles>(p, rows, head, row, softmax, output, queries);
}

template <int kDepth, int kTiles, bool kDropout>
void Run(const ForwardProblem<BFloat16>& p, const AttentionForwardArgs& args, Stream& stream) {
  constexpr int kRows = 16 * kTiles * kTileWarps;
  constexpr size_t kSharedBytes = sizeof(BFloat16) * kDepth * (kRows + 4 * kKeys);
  const Grid grid{QueryBlocks(p.shape, kRows), kTileThreads, kSharedBytes};
  Launch(stream, {"attention_forward", args.q}, grid, ForwardKernel<kDepth, kTiles, kDropout>, p);
}

}  // namespace

void TensorCoreForward(const ForwardProblem<BFloat16>& p, const AttentionForwardArgs& args,
                       bool tall, Stream& stream) {
  const bool dropout = p.shape.mask.limit != 0;
  WithPaddedDepth(p.shape.depth, [&](auto depth) {
    constexpr int kDepth = decltype(depth)::value;
    if constexpr (kDepth >= 64) {
      if (tall && !dropout) return Run<kDepth, 2, false>(p, args, stream);
    }
    if constexpr (kDepth == 64) {  // deeper heads leave no registers for the mask
      if (tall) return Run<kDepth, 2, true>(p, args, stream);
    }
    if (dropout) return Run<kDepth, 1, true>(p, args, stream);
    Run<kDepth, 1, false>(p, args, stream);
  });
}

}  // namespace tandem::kernels::cuda
