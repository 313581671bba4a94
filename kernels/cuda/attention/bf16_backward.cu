#include "kernels/cuda/attention/tiles.cuh"

// The backward pass of FlashAttention-2 (Dao 2023) with mma.sync, in two kernels that both
// recompute the probabilities. In the first, a block owns queries and walks over keys for dQ. In
// the second, a block owns keys and walks over queries for dK and dV. That takes 7 products of
// tiles instead of 5, but no atomics: every sum has one order. The second walk takes the heads of
// queries that share a head of keys one after the other.
// P = 2^(score_scale Q K' - log_sum); m is the dropout mask of 0 and keep_scale.
// dV = (m P)' dO, dS = P (m dO V' - delta), dQ = scale dS K, dK = scale dS' Q.
namespace tandem::kernels::cuda {

namespace {

// The RowStatistics of this lane's rows of the warp.
template <int kTiles>
struct LaneStatistics {
  float log_sum[kTiles][2], delta[kTiles][2];

  __device__ LaneStatistics(const BackwardProblem<BFloat16>& p, const SequenceRows& rows, int head,
                            int query) {
    const RowStatistics* statistics = p.statistics + head * p.shape.num_tokens + rows.begin;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int position = query + 16 * m + 8 * r + LaneRow();
        const RowStatistics row =
            position < rows.length ? statistics[position] : RowStatistics{0, 0};
        log_sum[m][r] = row.log_sum;
        delta[m][r] = row.delta;
      }
    }
  }
};

// Turns grads, which hold dO V', into dS.
template <int kTiles, int kKeys>
__device__ inline void ScoreGradients(const AttentionShape& shape,
                                      const LaneStatistics<kTiles>& statistics,
                                      const TileSums<kTiles, kKeys>& scores,
                                      TileSums<kTiles, kKeys>& grads) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float probability =
            FastExp2(fmaf(scores[m][n][e], shape.score_scale, -statistics.log_sum[m][e / 2]));
        grads[m][n][e] = probability * (grads[m][n][e] - statistics.delta[m][e / 2]);
      }
    }
  }
}

template <int kTiles, int kKeys>
__device__ inline void DropKeys(const AttentionShape& shape, const SequenceRows& rows, int head,
                                int query, int key, TileSums<kTiles, kKeys>& grads) {
  const KeptKeys<kTiles, kKeys> kept(shape, rows, head, query, key);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        grads[m][n][e] = kept.At(m, n, e) ? grads[m][n][e] * shape.mask.keep_scale : 0;
    }
  }
}

// Blocks of QueryGradientKernel that must fit a multiprocessor's registers; 0: the compiler
// chooses. At depth 64 it would take a few registers too many for one block more.
template <int kDepth, int kTiles, bool kDropout>
constexpr int kQueryBlocksPerProcessor = kDepth == 64 && !kDropout ? 5 - kTiles : 0;

template <int kDepth, int kTiles, bool kDropout>
__global__ void __launch_bounds__(kTileThreads, kQueryBlocksPerProcessor<kDepth, kTiles, kDropout>)
    QueryGradientKernel(BackwardProblem<BFloat16> p) {
  constexpr int kRows = 16 * kTiles * kTileWarps, kKeys = 64 / kTiles, kKeyTile = kKeys * kDepth;
  const SequenceRows rows = FindRows<kRows>(p.shape, p.shape.causal);
  if (rows.empty()) return;
  const int head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth;
  BFloat16* const queries = SharedMemory<BFloat16>();
  BFloat16* const grad_outputs = queries + kRows * kDepth;
  // Two tiles of keys and values, used in turn.
  BFloat16* const keys = grad_outputs + kRows * kDepth;
  const int row = WarpOfBlock() * 16 * kTiles, query = rows.first + row,
            last_query = query + 16 * kTiles - 1;
  const int end =
      p.shape.causal && rows.first + kRows < rows.length ? rows.first + kRows : rows.length;
  FetchTiles<kDepth, kRows>(rows, head, depth, rows.first, queries, p.q, p.grad_output);
  FetchTiles<kDepth, kKeys>(rows, key_head, depth, 0, keys, p.k, p.v);
  CpAsyncCommit();
  const LaneStatistics<kTiles> statistics(p, rows, head, query);
  TileSums<kTiles, kDepth> grad_q;
  SetZero<kTiles, kDepth>(grad_q);
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
    TileSums<kTiles, kKeys> scores, grads;
    DotProducts<kDepth, kTiles, kKeys>(queries, row, tile, scores);
    if (key + kKeys > rows.length || (p.shape.causal && key + kKeys - 1 > query)) {
      HideKeys<kTiles, kKeys>(rows, p.shape.causal, query + LaneRow(), key + LaneColumn(), scores);
    }
    DotProducts<kDepth, kTiles, kKeys>(grad_outputs, row, tile + kKeyTile, grads);
    if (kDropout) DropKeys<kTiles, kKeys>(p.shape, rows, head, query, key, grads);
    ScoreGradients<kTiles, kKeys>(p.shape, statistics, scores, grads);
    AddWeightedRows<kDepth, kTiles, kKeys>(grads, tile, grad_q);
  }
  if (query >= rows.length) return;
  float factors[kTiles][2];
  for (int m = 0; m < kTiles; ++m) factors[m][0] = factors[m][1] = p.shape.scale;
  StoreRows<kDepth, kTiles>(grad_q, factors, queries, row, p.grad_q, rows, head, depth);
}

// The dropout mask of the warp's keys (rows) and a tile's queries (columns). Each lane draws all 16
// kTiles keys of its own queries, 32 bits in all.
template <int kTiles>
class KeptQueries {
 public:
  static constexpr int kKeys = 16 * kTiles;

  // Covers the warp's keys, and the queries from position `query` on.
  __device__ KeptQueries(const AttentionShape& shape, const SequenceRows& rows, int head,
                         const KeyRun& keys, int query) {
    uint32_t drawn = 0;
#pragma unroll
    for (int i = 0; i < 64 / kTiles / kWarp; ++i) {
      const int wanted = query + Lane() + kWarp * i,
                position = wanted < rows.length ? wanted : rows.length - 1;
      drawn |= KeptBits<kKeys>(shape, rows.begin + position, head, keys, 0) << (kKeys * i % 32);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        bits_[n][i] = __shfl_sync(kAllLanes, drawn, 8 * n + LaneColumn() + i) >> LaneRow();
    }
  }

  __device__ bool At(int m, int n, int element) const {
    return bits_[n % 4][element % 2] >> (kKeys * (n / 4) + 16 * m + element / 2 * 8) & 1;
  }

 private:
  uint32_t bits_[4][2];
};

// Starts copies of the statistics of queries [first, first + kCount). Writes zeros past the
// sequence.
template <int kCount>
__device__ inline void FetchStatistics(const BackwardProblem<BFloat16>& p, const SequenceRows& rows,
                                       int head, int first, RowStatistics* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kCount) return;
  const bool there = first + i < rows.length;
  CpAsync8(to + i, p.statistics + head * p.shape.num_tokens + rows.begin + (there ? first + i : 0),
           there);
}

// Hides queries that come before the key. This lane's first query (column) is at position `query`,
// its first key (row) at position `key`.
template <int kTiles, int kQueries>
__device__ inline void HideQueries(int key, int query, TileSums<kTiles, kQueries>& scores) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (query + 8 * n + e % 2 < key + 16 * m + e / 2 * 8) scores[m][n][e] = -INFINITY;
      }
    }
  }
}

// Transposed: turns scores, which hold K Q', into (m P)' without keep_scale, and grads, which hold
// V dO', into dS'. `kept` may be null.
template <int kTiles, int kQueries>
__device__ inline void ScoreGradients(const AttentionShape& shape, const RowStatistics* statistics,
                                      const KeptQueries<kTiles>* kept,
                                      TileSums<kTiles, kQueries>& scores,
                                      TileSums<kTiles, kQueries>& grads) {
#pragma unroll
  for (int n = 0; n < kQueries / 8; ++n) {
    const Pack<RowStatistics, 2> columns =
        Pack<RowStatistics, 2>::At(statistics + 8 * n + LaneColumn());
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const RowStatistics& column = columns.values[e % 2];
        const float probability =
            FastExp2(fmaf(scores[m][n][e], shape.score_scale, -column.log_sum));
        const bool keep = kept == nullptr || kept->At(m, n, e);
        const float product = kept == nullptr ? grads[m][n][e]
                              : keep          ? grads[m][n][e] * shape.mask.keep_scale
                                              : 0;
        grads[m][n][e] = probability * (product - column.delta);
        scores[m][n][e] = keep ? probability : 0;
      }
    }
  }
}

template <int kDepth, int kTiles, bool kDropout>
__global__ void __launch_bounds__(kTileThreads) KeyGradientKernel(BackwardProblem<BFloat16> p) {
  constexpr int kRows = 16 * kTiles * kTileWarps, kQueries = 64 / kTiles,
                kQueryTile = kQueries * kDepth;
  const SequenceRows rows = FindRows<kRows>(p.shape, false);
  if (rows.empty()) return;
  const int first_head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth;
  BFloat16* const keys = SharedMemory<BFloat16>();
  BFloat16* const values = keys + kRows * kDepth;
  // Two tiles of queries and output gradients, used in turn.
  BFloat16* const queries = values + kRows * kDepth;
  auto* const statistics = reinterpret_cast<RowStatistics*>(queries + 4 * kQueryTile);
  const int row = WarpOfBlock() * 16 * kTiles, key = rows.first + row,
            last_key = key + 16 * kTiles - 1;
  const int begin = p.shape.causal ? rows.first : 0;
  const auto fetch = [&](int head, int query, int turn) {
    FetchTiles<kDepth, kQueries>(rows, head, depth, query, queries + turn * 2 * kQueryTile, p.q,
                                 p.grad_output);
    FetchStatistics<kQueries>(p, rows, head, query, statistics + turn * kQueries);
    CpAsyncCommit();
  };
  FetchTiles<kDepth, kRows>(rows, key_head, depth, rows.first, keys, p.k, p.v);
  fetch(first_head, begin, 0);
  KeyRun run{};
  if (kDropout)
    run = FindKeyRun(p.shape, rows.begin + key,
                     rows.length - key < 16 * kTiles ? rows.length - key : 16 * kTiles);
  TileSums<kTiles, kDepth> grad_k, grad_v;
  SetZero<kTiles, kDepth>(grad_k);
  SetZero<kTiles, kDepth>(grad_v);
  const int end_head = first_head + p.shape.sharing;
  int turn = 0;
  for (int head = first_head; head < end_head; ++head) {
    for (int query = begin; query < rows.length; query += kQueries, turn ^= 1) {
      const BFloat16* const tile = queries + turn * 2 * kQueryTile;
      CpAsyncWait<0>();
      __syncthreads();  // the tile has arrived, and nobody reads the other one
      if (query + kQueries < rows.length)
        fetch(head, query + kQueries, turn ^ 1);
      else if (head + 1 < end_head)
        fetch(head + 1, begin, turn ^ 1);
      if (key >= rows.length || (p.shape.causal && query + kQueries <= key)) continue;
      TileSums<kTiles, kQueries> scores, grads;
      DotProducts<kDepth, kTiles, kQueries>(keys, row, tile, scores);
      if (p.shape.causal && query < last_key)
        HideQueries<kTiles, kQueries>(key + LaneRow(), query + LaneColumn(), scores);
      DotProducts<kDepth, kTiles, kQueries>(values, row, tile + kQueryTile, grads);
      const RowStatistics* const columns = statistics + turn * kQueries;
      if constexpr (kDropout) {
        const KeptQueries<kTiles> kept(p.shape, rows, head, run, query);
        ScoreGradients<kTiles, kQueries>(p.shape, columns, &kept, scores, grads);
      } else {
        ScoreGradients<kTiles, kQueries>(p.shape, columns, nullptr, scores, grads);
      }
      AddWeightedRows<kDepth, kTiles, kQueries>(scores, tile + kQueryTile, grad_v);
      AddWeightedRows<kDepth, kTiles, kQueries>(grads, tile, grad_k);
    }
  }
  if (key >= rows.length) return;
  float factors[kTiles][2];
  for (int m = 0; m < kTiles; ++m) factors[m][0] = factors[m][1] = p.shape.scale;
  StoreRows<kDepth, kTiles>(grad_k, factors, keys, row, p.grad_k, rows, key_head, depth);
  for (int m = 0; m < kTiles; ++m) factors[m][0] = factors[m][1] = p.shape.mask.keep_scale;
  StoreRows<kDepth, kTiles>(grad_v, factors, values, row, p.grad_v, rows, key_head, depth);
}

template <int kDepth, int kQueryTiles, int kKeyTiles, bool kDropout>
void Run(const BackwardProblem<BFloat16>& p, const AttentionBackwardArgs& args, Stream& stream) {
  const auto shared_bytes = [](int tiles, int statistics) {
    const int rows = 16 * tiles * kTileWarps, walked = 64 / tiles;
    return sizeof(BFloat16) * kDepth * static_cast<size_t>(2 * rows + 4 * walked) +
           sizeof(RowStatistics) * static_cast<size_t>(statistics * walked);
  };
  constexpr int kQueryRows = 16 * kQueryTiles * kTileWarps, kKeyRows = 16 * kKeyTiles * kTileWarps;
  Launch(stream, {"attention_backward", args.q},
         {QueryBlocks(p.shape, kQueryRows), kTileThreads, shared_bytes(kQueryTiles, 0)},
         QueryGradientKernel<kDepth, kQueryTiles, kDropout>, p);
  Launch(stream, {"attention_backward", args.q},
         {KeyBlocks(p.shape, kKeyRows), kTileThreads, shared_bytes(kKeyTiles, 2)},
         KeyGradientKernel<kDepth, kKeyTiles, kDropout>, p);
}

}  // namespace

void TensorCoreBackward(const BackwardProblem<BFloat16>& p, const AttentionBackwardArgs& args,
                        bool tall, Stream& stream) {
  const bool dropout = p.shape.mask.limit != 0;
  WithPaddedDepth(p.shape.depth, [&](auto depth) {
    constexpr int kDepth = decltype(depth)::value;
    if constexpr (kDepth == 64) {  // no registers for more rows with deeper heads, or with a mask
      if (tall)
        return dropout ? Run<kDepth, 2, 1, true>(p, args, stream)
                       : Run<kDepth, 2, 2, false>(p, args, stream);
    }
    dropout ? Run<kDepth, 1, 1, true>(p, args, stream) : Run<kDepth, 1, 1, false>(p, args, stream);
  });
}

}  // namespace tandem::kernels::cuda
