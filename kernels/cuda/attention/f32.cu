#include "kernels/cuda/attention/float_tiles.cuh"

// Attention in f32 arithmetic: the walks of bf16_forward.cu and bf16_backward.cu, with fused
// multiply-adds from shared memory. For f32 arrays, and for bf16 arrays that tensor cores do not
// take.
namespace tandem::kernels::cuda {

namespace {

// Blocks that fit a multiprocessor's shared memory. The compiler limits registers to this number.
template <int kDepth>
constexpr int kBlocksPerProcessor = kDepth <= 64 ? 2 : 1;

// The sum (the maximum) over the 16 threads of a row of scores.
__device__ inline float SideSum(float x) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}
__device__ inline float SideMax(float x) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

__device__ inline int KeysEnd(const AttentionShape& shape, const SequenceRows& rows) {
  return shape.causal && rows.first + kFloatRows < rows.length ? rows.first + kFloatRows
                                                               : rows.length;
}
__device__ inline int RowsLeft(int end, int first) {
  return end - first < kFloatRows ? end - first : kFloatRows;
}

template <int kDepth>
__device__ inline void SetZero(OwnSums<kDepth>& sums) {
  for (auto& row : sums) {
    for (float& sum : row) sum = 0;
  }
}

// Turns scores into 2^(scale (score - running maximum)), and scales the sums so far to the new
// maximum. The first tile has key 0, which every query sees.
template <int kDepth>
__device__ inline void AddToSoftmax(const AttentionShape& shape, const SequenceRows& rows, int key,
                                    OwnScores& scores, float (&max)[kOwn], float (&sum)[kOwn],
                                    OwnSums<kDepth>& output) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int query = rows.first + kOwn * ThreadY() + i;
    float top = max[i];
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (!Sees(rows, shape.causal, query, key + ThreadX() + kSide * j)) scores[i][j] = -INFINITY;
      top = fmaxf(top, scores[i][j]);
    }
    top = SideMax(top);
    const float shrink = exp2f((max[i] - top) * shape.score_scale),
                shift = -top * shape.score_scale;
    float added = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      added += scores[i][j] = exp2f(fmaf(scores[i][j], shape.score_scale, shift));
    max[i] = top;
    sum[i] = fmaf(sum[i], shrink, added);
#pragma unroll
    for (int c = 0; c < kDepth / kSide; ++c) output[i][c] *= shrink;
  }
}

template <class S, int kDepth>
__global__ void __launch_bounds__(kFloatThreads, kBlocksPerProcessor<kDepth>)
    ForwardKernel(ForwardProblem<S> p, bool packs) {
  const SequenceRows rows = FindRows<kFloatRows>(p.shape, p.shape.causal);
  if (rows.empty()) return;
  const int head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth,
            end = KeysEnd(p.shape, rows);
  float* const queries = SharedMemory<float>();
  float *const keys = queries + kFloatTile<kDepth>, *const values = keys + kFloatTile<kDepth>;
  float* const weights = values + kFloatTile<kDepth>;
  LoadTile<kDepth>(p.q, rows, head, depth, packs, rows.first, queries);
  OwnSums<kDepth> output;
  SetZero<kDepth>(output);
  float max[kOwn] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[kOwn] = {};
  for (int key = 0; key < end; key += kFloatRows) {
    __syncthreads();
    LoadTile<kDepth>(p.k, rows, key_head, depth, packs, key, keys);
    LoadTile<kDepth>(p.v, rows, key_head, depth, packs, key, values);
    __syncthreads();
    OwnScores scores;
    DotProducts<kDepth>(queries, keys, depth, scores);
    AddToSoftmax<kDepth>(p.shape, rows, key, scores, max, sum, output);
    if (p.shape.mask.limit != 0) {
      const uint32_t kept = KeptPairs(p.shape, rows, head, rows.first, key);
#pragma unroll
      for (int i = 0; i < kOwn * kOwn; ++i)
        scores[i / kOwn][i % kOwn] = kept >> i & 1 ? scores[i / kOwn][i % kOwn] : 0;
    }
    PutScores(scores, weights);
    __syncwarp();  // one warp owns a row of scores
    AddWeightedRows<kDepth>(weights, values, RowsLeft(end, key), output);
  }
  float factors[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float total = SideSum(sum[i]);
    factors[i] = p.shape.mask.keep_scale / total;
    const int position = rows.first + kOwn * ThreadY() + i;
    if (ThreadX() == 0 && position < rows.length) {
      p.log_sum_exp[(rows.begin + position) * p.shape.num_heads + head] =
          max[i] * p.shape.score_scale + log2f(total);
    }
  }
  StoreRows<kDepth>(output, factors, p.output, rows, head, depth, packs);
}

// Turns scores into (m P) without keep_scale, and grads, which hold dO V', into dS. Covers queries
// from position `query` and keys from position `key` on.
template <class S>
__device__ inline void ScoreGradients(const BackwardProblem<S>& p, const SequenceRows& rows,
                                      int head, int query, int key, OwnScores& scores,
                                      OwnScores& grads) {
  const AttentionShape& shape = p.shape;
  const RowStatistics* statistics = p.statistics + head * shape.num_tokens + rows.begin;
  const uint32_t kept = shape.mask.limit != 0 ? KeptPairs(shape, rows, head, query, key) : 0xffffu;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int position = query + kOwn * ThreadY() + i;
    const RowStatistics row = position < rows.length ? statistics[position] : RowStatistics{0, 0};
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const bool seen =
          position < rows.length && Sees(rows, shape.causal, position, key + ThreadX() + kSide * j);
      const bool keep = kept >> (kOwn * i + j) & 1;
      const float probability =
          seen ? exp2f(fmaf(scores[i][j], shape.score_scale, -row.log_sum)) : 0;
      grads[i][j] = probability * ((keep ? grads[i][j] * shape.mask.keep_scale : 0) - row.delta);
      scores[i][j] = keep ? probability : 0;
    }
  }
}

template <class S, int kDepth>
__global__ void __launch_bounds__(kFloatThreads, kBlocksPerProcessor<kDepth>)
    QueryGradientKernel(BackwardProblem<S> p, bool packs) {
  const SequenceRows rows = FindRows<kFloatRows>(p.shape, p.shape.causal);
  if (rows.empty()) return;
  const int head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth,
            end = KeysEnd(p.shape, rows);
  float* const queries = SharedMemory<float>();
  float *const grad_outputs = queries + kFloatTile<kDepth>, *const keys =
                                                                grad_outputs + kFloatTile<kDepth>;
  float *const values = keys + kFloatTile<kDepth>, *const weights = values + kFloatTile<kDepth>;
  LoadTile<kDepth>(p.q, rows, head, depth, packs, rows.first, queries);
  LoadTile<kDepth>(p.grad_output, rows, head, depth, packs, rows.first, grad_outputs);
  OwnSums<kDepth> grad_q;
  SetZero<kDepth>(grad_q);
  for (int key = 0; key < end; key += kFloatRows) {
    __syncthreads();
    LoadTile<kDepth>(p.k, rows, key_head, depth, packs, key, keys);
    LoadTile<kDepth>(p.v, rows, key_head, depth, packs, key, values);
    __syncthreads();
    OwnScores scores, grads;
    DotProducts<kDepth>(queries, keys, depth, scores);
    DotProducts<kDepth>(grad_outputs, values, depth, grads);
    ScoreGradients(p, rows, head, rows.first, key, scores, grads);
    PutScores(grads, weights);
    __syncwarp();  // one warp owns a row of scores
    AddWeightedRows<kDepth>(weights, keys, RowsLeft(end, key), grad_q);
  }
  const float factors[kOwn] = {p.shape.scale, p.shape.scale, p.shape.scale, p.shape.scale};
  StoreRows<kDepth>(grad_q, factors, p.grad_q, rows, head, depth, packs);
}

template <class S, int kDepth>
__global__ void __launch_bounds__(kFloatThreads, kBlocksPerProcessor<kDepth>)
    KeyGradientKernel(BackwardProblem<S> p, bool packs) {
  const SequenceRows rows = FindRows<kFloatRows>(p.shape, false);
  if (rows.empty()) return;
  const int first_head = QueryHead(p.shape), key_head = KeyHead(), depth = p.shape.depth;
  float* const keys = SharedMemory<float>();
  float *const values = keys + kFloatTile<kDepth>, *const queries = values + kFloatTile<kDepth>;
  float *const grad_outputs = queries + kFloatTile<kDepth>, *const weights =
                                                                grad_outputs + kFloatTile<kDepth>;
  LoadTile<kDepth>(p.k, rows, key_head, depth, packs, rows.first, keys);
  LoadTile<kDepth>(p.v, rows, key_head, depth, packs, rows.first, values);
  OwnSums<kDepth> grad_k, grad_v;
  SetZero<kDepth>(grad_k);
  SetZero<kDepth>(grad_v);
  const int begin = p.shape.causal ? rows.first : 0, end_head = first_head + p.shape.sharing;
  for (int head = first_head; head < end_head; ++head) {
    for (int query = begin; query < rows.length; query += kFloatRows) {
      const int count = RowsLeft(rows.length, query);
      __syncthreads();
      LoadTile<kDepth>(p.q, rows, head, depth, packs, query, queries);
      LoadTile<kDepth>(p.grad_output, rows, head, depth, packs, query, grad_outputs);
      __syncthreads();
      OwnScores scores, grads;
      DotProducts<kDepth>(queries, keys, depth, scores);
      DotProducts<kDepth>(grad_outputs, values, depth, grads);
      ScoreGradients(p, rows, head, query, rows.first, scores, grads);
      PutScores(scores, weights);
      __syncthreads();
      AddWeightedRowsTransposed<kDepth>(weights, grad_outputs, count, grad_v);
      __syncthreads();
      PutScores(grads, weights);
      __syncthreads();
      AddWeightedRowsTransposed<kDepth>(weights, queries, count, grad_k);
    }
  }
  const float scale = p.shape.scale, keep_scale = p.shape.mask.keep_scale;
  StoreRows<kDepth>(grad_k, {scale, scale, scale, scale}, p.grad_k, rows, key_head, depth, packs);
  StoreRows<kDepth>(grad_v, {keep_scale, keep_scale, keep_scale, keep_scale}, p.grad_v, rows,
                    key_head, depth, packs);
}

// Calls body with the tile width in shared memory: the next compiled one.
template <class Body>
void WithTileDepth(int depth, const Body& body) {
  if (depth <= 32) return body(std::integral_constant<int, 32>{});
  if (depth <= 64) return body(std::integral_constant<int, 64>{});
  body(std::integral_constant<int, 128>{});
}

Grid GridOf(const dim3& blocks, int floats) {
  return {blocks, kFloatThreads, sizeof(float) * static_cast<size_t>(floats)};
}

}  // namespace

template <class S>
void FloatForward(const ForwardProblem<S>& p, const AttentionForwardArgs& args, bool packs,
                  Stream& stream) {
  WithTileDepth(p.shape.depth, [&](auto depth) {
    constexpr int kDepth = decltype(depth)::value;
    const Grid grid = GridOf(QueryBlocks(p.shape, kFloatRows), 3 * kFloatTile<kDepth> + kScoreTile);
    Launch(stream, {"attention_forward", args.q}, grid, ForwardKernel<S, kDepth>, p, packs);
  });
}

template <class S>
void FloatBackward(const BackwardProblem<S>& p, const AttentionBackwardArgs& args, bool packs,
                   Stream& stream) {
  WithTileDepth(p.shape.depth, [&](auto depth) {
    constexpr int kDepth = decltype(depth)::value;
    constexpr int kFloats = 4 * kFloatTile<kDepth> + kScoreTile;
    Launch(stream, {"attention_backward", args.q},
           GridOf(QueryBlocks(p.shape, kFloatRows), kFloats), QueryGradientKernel<S, kDepth>, p,
           packs);
    Launch(stream, {"attention_backward", args.q}, GridOf(KeyBlocks(p.shape, kFloatRows), kFloats),
           KeyGradientKernel<S, kDepth>, p, packs);
  });
}

template void FloatForward(const ForwardProblem<float>&, const AttentionForwardArgs&, bool,
                           Stream&);
template void FloatForward(const ForwardProblem<BFloat16>&, const AttentionForwardArgs&, bool,
                           Stream&);
template void FloatBackward(const BackwardProblem<float>&, const AttentionBackwardArgs&, bool,
                            Stream&);
template void FloatBackward(const BackwardProblem<BFloat16>&, const AttentionBackwardArgs&, bool,
                            Stream&);

}  // namespace tandem::kernels::cuda
