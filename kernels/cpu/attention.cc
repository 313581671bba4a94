#include "kernels/attention.h"

#include <algorithm>

#include "kernels/cpu/attention_block.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/small_matmul.h"
#include "kernels/cpu/storage.h"
#include "kernels/cpu/vectorise.h"

// One task per (sequence, head). It copies what it reads of k and v into scratch, then walks over blocks of queries; scores exist for
// one block at a time and stay in the cache. Sums run in a fixed order inside the task: over keys or queries, ascending.
namespace tandem::kernels {

namespace {

constexpr double kLog2E = 1.4426950408889634;

// Keys per block of scores in the backward pass: two blocks of scores and what they meet of k, v and their gradients fit in the cache.
constexpr int64_t kBlockKeys = 86 * kTileRows;

// The arguments in one storage type, common to both passes.
template <class S>
struct Problem {
  using T = Compute<S>;
  const S *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;  // between tokens
  int64_t num_heads, depth;
  const int64_t *offsets, *row_index;
  int64_t max_length;
  bool causal;
  T scale;
  int32_t drop_threshold;
  T keep_scale;  // 1 / (1 - dropout)
  uint64_t folded_key, step;
};

// One sequence and head. Its queries are the last `num_queries` tokens of `num_keys`.
struct Task {
  int64_t head, first_query, num_queries, first_key, num_keys;
  int64_t padded_keys, width;  // extents in scratch of keys and of a row

  Task(int64_t head, int64_t first_query, int64_t num_queries, int64_t first_key, int64_t num_keys, int64_t depth)
      : head(head), first_query(first_query), num_queries(num_queries), first_key(first_key), num_keys(num_keys),
        padded_keys(RoundUp(num_keys, kTileRows)), width(RoundUp(depth, kLanes)) {}
};

// Cuts scratch into arrays; a dry run without memory counts what they need.
template <class T>
class Arena {
 public:
  explicit Arena(T* memory = nullptr) : memory_(memory) {}
  T* Take(int64_t count) {
    T* array = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundUp(count, kLanes);
    return array;
  }
  int64_t used() const { return used_; }

 private:
  T* memory_;
  int64_t used_ = 0;
};

// Rows of a block of queries with room for whole tiles, and of a block of scores: its last tile reads into the next row.
constexpr int64_t kQueryRows = kBlockQueries + kTileRows;
constexpr int64_t ScoreRoom(int64_t padded_keys) { return (padded_keys + 1) * kBlockQueries; }

template <class S, class T = Compute<S>>
void Load(const S* array, int64_t stride, int64_t first, int64_t rows, int64_t padded_rows, int64_t head, int64_t depth, int64_t width,
          T* to) {
  Vectorised([=, from = array + first * stride + head * depth] { LoadRows(from, stride, rows, padded_rows, depth, width, to); });
}

template <class S, class T = Compute<S>>
void Save(const T* from, int64_t rows, int64_t head, int64_t depth, int64_t width, const T* factors, int64_t first, S* array,
          int64_t stride) {
  Vectorised([=, to = array + first * stride + head * depth] { StoreRows(from, rows, depth, width, factors, to, stride); });
}

// The block of queries from `begin` of the task on, against keys [key_begin, key_end).
template <class S>
ScoreBlock BlockAt(const Problem<S>& p, const Task& task, int64_t begin, int64_t key_begin, int64_t key_end) {
  const int64_t queries = std::min(kBlockQueries, task.num_queries - begin);
  const int64_t keys = key_end - key_begin, position = task.num_keys - task.num_queries + begin - key_begin;
  return {queries, RoundUp(queries, kLanes), keys, p.causal ? position : keys};
}

// Keys that some query of the block from `begin` on sees.
template <class S>
int64_t KeysInSight(const Problem<S>& p, const Task& task, int64_t begin) {
  const int64_t queries = std::min(kBlockQueries, task.num_queries - begin);
  return p.causal ? task.num_keys - task.num_queries + begin + queries : task.num_keys;
}

// rows [keys, width] against columns [width, kBlockQueries]: scores [keys, kBlockQueries] of the pairs in sight.
template <class T>
void ScoreProduct(const ScoreBlock& block, int64_t depth, const T* rows, int64_t width, const T* columns, T* scores) {
  SmallMatmul(block.keys, SmallOperands<T>{rows, width, 1, columns, kBlockQueries, scores, kBlockQueries}, false, [=](int64_t j) {
    return TileExtent{0, depth, block.FirstQuery(j) / kLanes * kLanes, block.columns};
  });
}

// out [queries, width] (plus its old value) = scores' rows, over the keys in sight.
template <class T>
void QueryProduct(const ScoreBlock& block, const T* scores, const T* rows, int64_t width, bool accumulate, T* out) {
  SmallMatmul(block.queries, SmallOperands<T>{scores, 1, kBlockQueries, rows, width, out, width}, accumulate, [=](int64_t i) {
    return TileExtent{0, block.LastKey(i), 0, width};
  });
}

// out [keys, width] += scores rows, over the queries that see the key.
template <class T>
void KeyProduct(const ScoreBlock& block, const T* scores, const T* rows, int64_t width, T* out) {
  SmallMatmul(block.keys, SmallOperands<T>{scores, kBlockQueries, 1, rows, width, out, width}, true, [=](int64_t j) {
    return TileExtent{std::min(block.FirstQuery(j), block.queries), block.queries, 0, width};
  });
}

// The places of the keys in their sample, if dropout needs them.
template <class S>
const int64_t* PlacesOfKeys(const Problem<S>& p, const Task& task) {
  if (p.drop_threshold == 0) return nullptr;
  int64_t* places = Scratch<int64_t>(ScratchSlot::TASK_B, task.num_keys);
  for (int64_t j = 0; j < task.num_keys; ++j) places[j] = p.row_index[task.first_key + j] % p.max_length;
  return places;
}

// The dropout mask of the queries from `begin` on.
template <class S>
ColumnMask MaskAt(const Problem<S>& p, const Task& task, const int64_t* places, int64_t begin) {
  ColumnMask mask;
  if (p.drop_threshold == 0) return mask;
  mask.folded_key = p.folded_key;
  mask.step = p.step;
  mask.threshold = p.drop_threshold;
  mask.places = places;
  mask.room = Scratch<uint32_t>(ScratchSlot::TASK_C, WordColumnsRoom(task.num_keys));
  mask.contiguous = true;
  for (int64_t j = 1; j < task.num_keys; ++j) mask.contiguous &= places[j] == places[j - 1] + 1;
  for (int64_t i = 0; i < kBlockQueries; ++i) {
    const int64_t token = task.first_query + std::min(begin + i, task.num_queries - 1);
    mask.base[i] = (static_cast<uint64_t>(p.row_index[token]) * static_cast<uint64_t>(p.num_heads) +
                    static_cast<uint64_t>(task.head)) * static_cast<uint64_t>(p.max_length);
  }
  return mask;
}

template <class T>
struct ForwardArrays {
  T *k, *v, *scores, *q, *q_columns, *out;

  ForwardArrays(const Task& task, Arena<T>& arena)
      : k(arena.Take(task.padded_keys * task.width)), v(arena.Take(task.padded_keys * task.width)),
        scores(arena.Take(ScoreRoom(task.padded_keys))), q(arena.Take(kQueryRows * task.width)),
        q_columns(arena.Take(task.width * kBlockQueries)), out(arena.Take(kQueryRows * task.width)) {}
};

template <class S, class T = Compute<S>>
void ForwardTask(const Problem<S>& p, const Task& task, const ForwardArrays<T>& a, S* output, T* log_sum_exp) {
  const int64_t width = task.width, depth = p.depth;
  Load(p.k, p.k_stride, task.first_key, task.num_keys, task.padded_keys, task.head, depth, width, a.k);
  Load(p.v, p.v_stride, task.first_key, task.num_keys, task.padded_keys, task.head, depth, width, a.v);
  const int64_t* places = PlacesOfKeys(p, task);
  const T score_scale = p.scale * static_cast<T>(kLog2E);
  for (int64_t begin = 0; begin < task.num_queries; begin += kBlockQueries) {
    const ScoreBlock block = BlockAt(p, task, begin, 0, KeysInSight(p, task, begin));
    Load(p.q, p.q_stride, task.first_query + begin, block.queries, block.columns, task.head, depth, width, a.q);
    Vectorised([=, &a] { TransposeRows(a.q, block.columns, width, width, score_scale, a.q_columns, kBlockQueries); });
    ScoreProduct(block, depth, a.k, width, a.q_columns, a.scores);
    T log_sums[kBlockQueries], factors[kBlockQueries];
    const ColumnMask mask = MaskAt(p, task, places, begin);
    if (p.drop_threshold == 0) {
      Vectorised([&](auto set) { ExponentiateColumns<set, false>(block, mask, a.scores, log_sums, factors); });
    } else {
      Vectorised([&](auto set) { ExponentiateColumns<set, true>(block, mask, a.scores, log_sums, factors); });
    }
    for (T& factor : factors) factor *= p.keep_scale;
    QueryProduct(block, a.scores, a.v, width, false, a.out);
    Save(a.out, block.queries, task.head, depth, width, factors, task.first_query + begin, output, p.num_heads * depth);
    if (log_sum_exp == nullptr) continue;
    for (int64_t i = 0; i < block.queries; ++i) log_sum_exp[(task.first_query + begin + i) * p.num_heads + task.head] = log_sums[i];
  }
}

// Views of the backward pass: grads may be strided over tokens like q, k, v.
template <class S>
struct Gradients {
  const S *output, *grad_output;
  const Compute<S>* log_sum_exp;
  S *q, *k, *v;
  int64_t output_stride, grad_output_stride, q_stride, k_stride, v_stride;
};

template <class T>
struct BackwardArrays {
  T *k, *v, *grad_k, *grad_v, *scores, *grad_scores, *q, *grad_out, *q_columns, *grad_out_columns, *grad_q, *factors;

  BackwardArrays(const Task& task, Arena<T>& arena)
      : k(arena.Take(task.padded_keys * task.width)), v(arena.Take(task.padded_keys * task.width)),
        grad_k(arena.Take(task.padded_keys * task.width)), grad_v(arena.Take(task.padded_keys * task.width)),
        scores(arena.Take(ScoreRoom(std::min(task.padded_keys, kBlockKeys)))),
        grad_scores(arena.Take(ScoreRoom(std::min(task.padded_keys, kBlockKeys)))), q(arena.Take(kQueryRows * task.width)),
        grad_out(arena.Take(kQueryRows * task.width)), q_columns(arena.Take(task.width * kBlockQueries)),
        grad_out_columns(arena.Take(task.width * kBlockQueries)), grad_q(arena.Take(kQueryRows * task.width)),
        factors(arena.Take(task.padded_keys)) {}
};

// A block of queries against a block of keys, with P the probabilities, m the dropout mask and delta[i] = sum_d output grad_output:
// dV += (m P)' dO, dS = P (m (dO V') - delta), dQ += dS K, dK += dS' Q, both without `scale`. P comes from the saved log-sum-exp.
template <class S, class T = Compute<S>>
void BackwardBlock(const Problem<S>& p, const Task& task, const ScoreBlock& block, const BackwardArrays<T>& a, int64_t key_begin,
                   const T* log_sums, const T* delta, const ColumnMask& mask) {
  const int64_t width = task.width, at = key_begin * width;
  ScoreProduct(block, p.depth, a.k + at, width, a.q_columns, a.scores);
  ScoreProduct(block, p.depth, a.v + at, width, a.grad_out_columns, a.grad_scores);
  if (p.drop_threshold == 0) {
    Vectorised([&](auto set) { GradientColumns<set, false>(block, mask, T(1), log_sums, delta, a.scores, a.grad_scores); });
  } else {
    Vectorised([&](auto set) { GradientColumns<set, true>(block, mask, p.keep_scale, log_sums, delta, a.scores, a.grad_scores); });
  }
  KeyProduct(block, a.scores, a.grad_out, width, a.grad_v + at);
  KeyProduct(block, a.grad_scores, a.q, width, a.grad_k + at);
  QueryProduct(block, a.grad_scores, a.k + at, width, key_begin > 0, a.grad_q);
}

template <class S, class T = Compute<S>>
void BackwardTask(const Problem<S>& p, const Task& task, const Gradients<S>& g, const BackwardArrays<T>& a) {
  const int64_t width = task.width, depth = p.depth, head = task.head;
  Load(p.k, p.k_stride, task.first_key, task.num_keys, task.padded_keys, head, depth, width, a.k);
  Load(p.v, p.v_stride, task.first_key, task.num_keys, task.padded_keys, head, depth, width, a.v);
  std::fill_n(a.grad_k, task.padded_keys * width, T(0));
  std::fill_n(a.grad_v, task.padded_keys * width, T(0));
  const int64_t* places = PlacesOfKeys(p, task);
  const T score_scale = p.scale * static_cast<T>(kLog2E);
  for (int64_t begin = 0; begin < task.num_queries; begin += kBlockQueries) {
    const int64_t token = task.first_query + begin, last_key = KeysInSight(p, task, begin);
    const ScoreBlock all = BlockAt(p, task, begin, 0, last_key);
    Load(p.q, p.q_stride, token, all.queries, all.columns, head, depth, width, a.q);
    Load(g.grad_output, g.grad_output_stride, token, all.queries, all.columns, head, depth, width, a.grad_out);
    T log_sums[kBlockQueries] = {}, delta[kBlockQueries];
    for (int64_t i = 0; i < all.queries; ++i) log_sums[i] = g.log_sum_exp[(token + i) * p.num_heads + head];
    Load(g.output, g.output_stride, token, all.queries, all.columns, head, depth, width, a.grad_q);
    Vectorised([&] {
      TransposeRows(a.q, all.columns, width, width, score_scale, a.q_columns, kBlockQueries);
      TransposeRows(a.grad_out, all.columns, width, width, T(1), a.grad_out_columns, kBlockQueries);
      RowDots(a.grad_q, a.grad_out, all.columns, width, delta);
    });
    ColumnMask mask = MaskAt(p, task, places, begin);
    for (int64_t key = 0; key < last_key; key += kBlockKeys, mask.places += kBlockKeys) {
      BackwardBlock(p, task, BlockAt(p, task, begin, key, std::min(last_key, key + kBlockKeys)), a, key, log_sums, delta, mask);
    }
    std::fill_n(a.factors, all.queries, p.scale);
    Save(a.grad_q, all.queries, head, depth, width, a.factors, token, g.q, g.q_stride);
  }
  std::fill_n(a.factors, task.num_keys, p.scale);
  Save(a.grad_k, task.num_keys, head, depth, width, a.factors, task.first_key, g.k, g.k_stride);
  std::fill_n(a.factors, task.num_keys, p.keep_scale);
  Save(a.grad_v, task.num_keys, head, depth, width, a.factors, task.first_key, g.v, g.v_stride);
}

// The token stride of a [T, H, D] view.
int64_t TokenStride(const ArrayView& view, const ArrayView& q) {
  const Shape& shape = view.shape;
  TANDEM_CHECK(shape.num_dims() == 3 && shape[1] == q.shape[1] && shape[2] == q.shape[2]) << shape << " and q " << q.shape;
  TANDEM_CHECK(shape[0] == 0 || (view.strides[2] == 1 && (shape[1] == 1 || view.strides[1] == shape[2])))
      << "strides " << view.strides << " of " << shape;
  return shape[0] <= 1 ? shape[1] * shape[2] : view.strides[0];
}

template <class S>
Problem<S> ProblemOf(const ArrayView& q, const ArrayView& k, const ArrayView& v, double scale) {
  Problem<S> p{};
  TANDEM_CHECK_EQ(k.shape[0], v.shape[0]);
  p.q = q.as<S>();
  p.k = k.as<S>();
  p.v = v.as<S>();
  p.q_stride = TokenStride(q, q);
  p.k_stride = TokenStride(k, q);
  p.v_stride = TokenStride(v, q);
  p.num_heads = q.shape[1];
  p.depth = q.shape[2];
  p.causal = true;
  p.scale = static_cast<Compute<S>>(scale);
  p.keep_scale = 1;
  return p;
}

template <class S>
Problem<S> ProblemOf(const AttentionArgs& args) {
  Problem<S> p = ProblemOf<S>(args.q, args.k, args.v, args.scale);
  const int64_t num_tokens = args.q.shape[0];
  TANDEM_CHECK_EQ(args.k.shape[0], num_tokens);
  TANDEM_CHECK_EQ(args.row_index.num_elements(), num_tokens);
  TANDEM_CHECK_GE(args.offsets.num_elements(), 1);
  TANDEM_CHECK(args.dropout >= 0 && args.dropout < 1) << args.dropout;
  TANDEM_CHECK(args.dropout == 0 || args.max_length > 0) << args.max_length;
  p.offsets = args.offsets.as<int64_t>();
  p.row_index = args.row_index.as<int64_t>();
  p.max_length = args.max_length;
  p.causal = args.causal;
  p.drop_threshold = args.dropout == 0 ? 0 : DropThreshold(args.dropout);
  p.keep_scale = static_cast<Compute<S>>(1.0 / (1.0 - args.dropout));
  p.folded_key = FoldKey(args.key);
  p.step = args.step;
  const int64_t num_sequences = args.offsets.num_elements() - 1;
  TANDEM_CHECK(p.offsets[0] == 0 && p.offsets[num_sequences] == num_tokens)
      << p.offsets[0] << " to " << p.offsets[num_sequences] << " of " << num_tokens << " tokens";
  for (int64_t b = 0; b < num_sequences; ++b) TANDEM_CHECK_LE(p.offsets[b], p.offsets[b + 1]);
  return p;
}

// Calls run(task) for every head of every sequence that is not empty.
template <class S, class Run>
void ForEachTask(const Problem<S>& p, int64_t num_sequences, Stream& stream, const Run& run) {
  stream.pool().ParallelFor(num_sequences * p.num_heads, [&](int64_t index) {
    const int64_t sequence = index / p.num_heads, begin = p.offsets[sequence];
    const int64_t length = p.offsets[sequence + 1] - begin;
    if (length > 0) run(Task(index % p.num_heads, begin, length, begin, length, p.depth));
  });
}

// The arrays of a task, in scratch of the calling thread.
template <class Arrays, class T>
Arrays ArraysOf(const Task& task) {
  Arena<T> dry;
  Arrays(task, dry);
  Arena<T> arena(Scratch<T>(ScratchSlot::TASK_A, dry.used()));
  return Arrays(task, arena);
}

}  // namespace

void AttentionForward(const AttentionForwardArgs& args, Stream& stream) {
  TANDEM_CHECK(args.output.is_dense() && args.output.shape == args.q.shape) << args.output.shape;
  TANDEM_CHECK_EQ(args.log_sum_exp.num_elements(), args.q.shape[0] * args.q.shape[1]);
  WithStorageType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const Problem<S> p = ProblemOf<S>(args);
    S* output = args.output.as<S>();
    T* log_sum_exp = args.log_sum_exp.as<T>();
    ForEachTask(p, args.offsets.num_elements() - 1, stream, [&](const Task& task) {
      ForwardTask(p, task, ArraysOf<ForwardArrays<T>, T>(task), output, log_sum_exp);
    });
  });
}

void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream) {
  TANDEM_CHECK_EQ(args.log_sum_exp.num_elements(), args.q.shape[0] * args.q.shape[1]);
  WithStorageType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const Problem<S> p = ProblemOf<S>(args);
    const Gradients<S> g{args.output.as<S>(), args.grad_output.as<S>(), args.log_sum_exp.as<T>(), args.grad_q.as<S>(),
                         args.grad_k.as<S>(), args.grad_v.as<S>(), TokenStride(args.output, args.q),
                         TokenStride(args.grad_output, args.q), TokenStride(args.grad_q, args.q),
                         TokenStride(args.grad_k, args.q), TokenStride(args.grad_v, args.q)};
    ForEachTask(p, args.offsets.num_elements() - 1, stream, [&](const Task& task) {
      BackwardTask(p, task, g, ArraysOf<BackwardArrays<T>, T>(task));
    });
  });
}

void CachedAttention(const CachedAttentionArgs& args, Stream& stream) {
  const int64_t num_queries = args.q.shape[0], num_keys = args.k.shape[0];
  TANDEM_CHECK(args.output.is_dense() && args.output.shape == args.q.shape) << args.output.shape;
  TANDEM_CHECK_GE(num_keys, num_queries);
  if (num_queries == 0) return;
  WithStorageType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const Problem<S> p = ProblemOf<S>(args.q, args.k, args.v, args.scale);
    S* output = args.output.as<S>();
    stream.pool().ParallelFor(p.num_heads, [&](int64_t head) {
      const Task task(head, 0, num_queries, 0, num_keys, p.depth);
      ForwardTask(p, task, ArraysOf<ForwardArrays<T>, T>(task), output, static_cast<T*>(nullptr));
    });
  });
}

}  // namespace tandem::kernels
