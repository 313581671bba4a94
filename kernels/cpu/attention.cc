#include "kernels/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/small_matmul.h"
#include "kernels/cpu/softmax_row.h"
#include "kernels/cpu/vectorise.h"

// One task per (sequence, head). It copies what it reads of q, k, v into padded scratch (lengths to a multiple of 16, zeros in the
// padding), then walks over blocks of queries; scores exist for one block at a time. Sums run in a fixed order inside the task.
namespace tandem::kernels {

namespace {

constexpr int64_t kQueryBlock = 32;

int64_t RoundUp(int64_t x) { return (x + kLanes - 1) / kLanes * kLanes; }

// The arguments in one element type, common to both passes.
template <class T>
struct Problem {
  const T *q, *k, *v;
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

// One sequence and head, with the padded extents of its scratch. Its queries are the tokens from `first_query` of the sequence on.
struct Task {
  int64_t head, first_token, length, padded_length, padded_depth;
  int64_t first_query = 0;
};

// Rows of one head, token after token, into padded rows of `to`.
template <class T>
void LoadRows(const T* from, int64_t stride, int64_t rows, int64_t padded_rows, int64_t depth, int64_t padded_depth,
                     T* to) {
  Vectorised([=] {
    for (int64_t r = 0; r < rows; ++r) {
      T* row = to + r * padded_depth;
#pragma GCC ivdep
      for (int64_t d = 0; d < depth; ++d) row[d] = from[r * stride + d];
      for (int64_t d = depth; d < padded_depth; ++d) row[d] = T(0);
    }
    for (int64_t i = rows * padded_depth; i < padded_rows * padded_depth; ++i) to[i] = T(0);
  });
}

// The same, transposed: to [depth, padded_rows].
template <class T>
void LoadColumns(const T* from, int64_t stride, int64_t rows, int64_t padded_rows, int64_t depth, T* to) {
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t r = 0; r < rows; ++r) to[d * padded_rows + r] = from[r * stride + d];
    for (int64_t r = rows; r < padded_rows; ++r) to[d * padded_rows + r] = T(0);
  }
}

template <class T>
void StoreRows(const T* from, int64_t rows, int64_t depth, int64_t padded_depth, T factor, T* to, int64_t stride) {
  Vectorised([=] {
    for (int64_t r = 0; r < rows; ++r) {
#pragma GCC ivdep
      for (int64_t d = 0; d < depth; ++d) to[r * stride + d] = factor * from[r * padded_depth + d];
    }
  });
}

// Multiplies probabilities of query token `query` by its dropout mask: 0 or 1 / (1 - dropout) for keys [0, num_keys).
// `contiguous`: the sequence's keys have consecutive places, so their random numbers are a run.
template <class T>
void DropRow(const Problem<T>& p, const Task& task, int64_t query, int64_t num_keys, bool contiguous, T* row) {
  const uint64_t first = (static_cast<uint64_t>(p.row_index[task.first_token + query]) * static_cast<uint64_t>(p.num_heads) +
                          static_cast<uint64_t>(task.head)) * static_cast<uint64_t>(p.max_length);
  const int64_t* places = p.row_index + task.first_token;
  const uint64_t folded_key = p.folded_key, step = p.step;
  const auto drop = [row, threshold = p.drop_threshold, scale = p.keep_scale](int64_t j, uint32_t word) {
    row[j] = DropOrScale(word, threshold, row[j], scale);
  };
  if (contiguous) {
    const uint64_t run = first + static_cast<uint64_t>(places[0] % p.max_length);
    // On to whole vectors: what lies behind the keys in sight is 0 or never read.
    Vectorised([=] { ForEachRandomWord(folded_key, step, run, RoundUp(num_keys), drop); });
    return;
  }
  for (int64_t j = 0; j < num_keys; ++j) {
    const uint64_t element = first + static_cast<uint64_t>(places[j] % p.max_length);
    drop(j, PhiloxBlock(folded_key, step, element / 4)[element % 4]);
  }
}

template <class T>
bool KeysAreContiguous(const Problem<T>& p, const Task& task) {
  const int64_t* places = p.row_index + task.first_token;
  if (places[0] % p.max_length + task.length > p.max_length) return false;
  for (int64_t j = 1; j < task.length; ++j) {
    if (places[j] != places[0] + j) return false;
  }
  return true;
}

// A block of queries: rows [begin, begin + rows) of the sequence against keys [0, num_keys).
struct Block {
  int64_t begin, rows, padded_rows, num_keys, padded_keys;
};

inline Block BlockAt(int64_t begin, bool causal, const Task& task) {
  const int64_t rows = std::min(kQueryBlock, task.length - begin);
  const int64_t num_keys = causal ? begin + rows : task.length;
  return {begin, rows, (rows + kTileRows - 1) / kTileRows * kTileRows, num_keys, RoundUp(num_keys)};
}

inline int64_t KeysOf(const Block& block, int64_t row, bool causal) {
  return causal ? block.begin + row + 1 : block.num_keys;
}

// scores [block, padded_keys] = scale q k', minus infinity where a key is out of sight.
template <class T>
void Scores(const Problem<T>& p, const Task& task, const Block& block, const T* q_rows, const T* k_columns, T* scores) {
  const int64_t row_stride = task.padded_length;
  SmallMatmul<false>(block.padded_rows, block.padded_keys, p.depth, q_rows, task.padded_depth, int64_t{1}, k_columns,
                     task.padded_length, scores, row_stride);
  Vectorised([=, causal = p.causal, scale = p.scale] {
    for (int64_t i = 0; i < block.rows; ++i) {
      T* row = scores + i * row_stride;
      const int64_t visible = KeysOf(block, i, causal);
      for (int64_t j = 0; j < visible; ++j) row[j] *= scale;
      for (int64_t j = visible; j < block.padded_keys; ++j) row[j] = -std::numeric_limits<T>::infinity();
    }
  });
}

template <class T>
int64_t ForwardScratch(const Task& task) {
  return task.padded_length * (task.padded_depth * 2 + kQueryBlock) + 2 * kQueryBlock * task.padded_depth;
}

template <class T>
void ForwardTask(const Problem<T>& p, const Task& task, T* scratch, T* output, T* log_sum_exp) {
  const int64_t length = task.length, padded = task.padded_length, width = task.padded_depth;
  const int64_t at = task.head * p.depth, out_stride = p.num_heads * p.depth;
  T* k_columns = scratch;
  T* v_rows = k_columns + padded * width;
  T* scores = v_rows + padded * width;
  T* q_rows = scores + kQueryBlock * padded;
  T* out_rows = q_rows + kQueryBlock * width;
  LoadColumns(p.k + task.first_token * p.k_stride + at, p.k_stride, length, padded, p.depth, k_columns);
  LoadRows(p.v + task.first_token * p.v_stride + at, p.v_stride, length, padded, p.depth, width, v_rows);
  const bool contiguous = p.drop_threshold > 0 && KeysAreContiguous(p, task);
  for (int64_t begin = task.first_query; begin < length; begin += kQueryBlock) {
    const Block block = BlockAt(begin, p.causal, task);
    const int64_t token = task.first_token + begin - task.first_query;
    LoadRows(p.q + token * p.q_stride + at, p.q_stride, block.rows, block.padded_rows, p.depth, width, q_rows);
    Scores(p, task, block, q_rows, k_columns, scores);
    Vectorised([=, log_sums = log_sum_exp + token * p.num_heads + task.head, log_sum_stride = p.num_heads] {
      for (int64_t i = 0; i < block.rows; ++i) {
        T* row = scores + i * padded;
        const ExpRowResult<T> result = ExpRow(block.padded_keys, row, row);
        if (log_sum_exp != nullptr) log_sums[i * log_sum_stride] = result.max + Log(result.sum);
        const T inverse = T(1) / result.sum;
        for (int64_t j = 0; j < block.padded_keys; ++j) row[j] *= inverse;
      }
    });
    for (int64_t i = 0; i < block.rows && p.drop_threshold > 0; ++i) {
      DropRow(p, task, begin + i, KeysOf(block, i, p.causal), contiguous, scores + i * padded);
    }
    SmallMatmul<false>(block.padded_rows, width, block.num_keys, scores, padded, int64_t{1}, v_rows, width, out_rows, width);
    StoreRows(out_rows, block.rows, p.depth, width, T(1), output + token * out_stride + at, out_stride);
  }
}

// Views of the backward pass: grads may be strided over tokens like q, k, v.
template <class T>
struct Gradients {
  const T *output, *log_sum_exp, *grad_output;
  T *q, *k, *v;
  int64_t output_stride, grad_output_stride, q_stride, k_stride, v_stride;
};

template <class T>
int64_t BackwardScratch(const Task& task) {
  return task.padded_length * (task.padded_depth * 5 + 3 * kQueryBlock) + 3 * kQueryBlock * task.padded_depth;
}

// Per query row: scores become probabilities P, `dropped` m P, and grad_scores, which holds dO V', becomes dS without `scale`.
// Rows of padding are left as they are: they reach only rows of dQ that are not stored.
template <class T>
void ProbabilityGradients(const Problem<T>& p, const Task& task, const Block& block, const Gradients<T>& g,
                                 bool contiguous, const T* grad_rows, T* scores, T* dropped, T* grad_scores) {
  const int64_t padded = task.padded_length, width = task.padded_depth, keys = block.padded_keys, depth = p.depth;
  Vectorised([=] {
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t j = 0; j < keys; ++j) dropped[i * padded + j] = T(1);
    }
  });
  for (int64_t i = 0; i < block.rows && p.drop_threshold > 0; ++i) {
    DropRow(p, task, block.begin + i, KeysOf(block, i, p.causal), contiguous, dropped + i * padded);
  }
  const int64_t token = task.first_token + block.begin, output_stride = g.output_stride, log_sum_stride = p.num_heads;
  const T* output = g.output + token * output_stride + task.head * depth;
  const T* log_sums = g.log_sum_exp + token * p.num_heads + task.head;
  Vectorised([=] {
    for (int64_t i = 0; i < block.rows; ++i) {
      T *row = scores + i * padded, *kept = dropped + i * padded, *grad = grad_scores + i * padded;
      const T *out = output + i * output_stride, *grad_out = grad_rows + i * width;
      const T delta = LaneSum<T>(depth, [=](int64_t d) { return out[d] * grad_out[d]; });
      const T saved = log_sums[i * log_sum_stride];
#pragma GCC ivdep
      for (int64_t j = 0; j < keys; ++j) {
        const T probability = Exp(row[j] - saved);
        grad[j] = probability * (grad[j] * kept[j] - delta);
        kept[j] *= probability;
      }
    }
  });
}

// With P the probabilities, m the dropout mask and delta[i] = sum_d output grad_output: dV = (m P)' dO,
// dS = P (m (dO V') - delta), dQ = scale dS K, dK = scale dS' Q. P comes from the saved log-sum-exp.
template <class T>
void BackwardTask(const Problem<T>& p, const Task& task, const Gradients<T>& g, T* scratch) {
  const int64_t length = task.length, padded = task.padded_length, width = task.padded_depth;
  const int64_t at = task.head * p.depth, first = task.first_token;
  T* k_columns = scratch;
  T* v_columns = k_columns + padded * width;
  T* k_rows = v_columns + padded * width;
  T* grad_k = k_rows + padded * width;
  T* grad_v = grad_k + padded * width;
  T* scores = grad_v + padded * width;
  T* dropped = scores + kQueryBlock * padded;
  T* grad_scores = dropped + kQueryBlock * padded;
  T* q_rows = grad_scores + kQueryBlock * padded;
  T* grad_rows = q_rows + kQueryBlock * width;
  T* grad_q = grad_rows + kQueryBlock * width;
  LoadColumns(p.k + first * p.k_stride + at, p.k_stride, length, padded, p.depth, k_columns);
  LoadColumns(p.v + first * p.v_stride + at, p.v_stride, length, padded, p.depth, v_columns);
  LoadRows(p.k + first * p.k_stride + at, p.k_stride, length, padded, p.depth, width, k_rows);
  std::fill(grad_k, grad_k + 2 * padded * width, T(0));
  const bool contiguous = p.drop_threshold > 0 && KeysAreContiguous(p, task);
  for (int64_t begin = 0; begin < length; begin += kQueryBlock) {
    const Block block = BlockAt(begin, p.causal, task);
    const int64_t token = first + begin, keys = block.padded_keys;
    LoadRows(p.q + token * p.q_stride + at, p.q_stride, block.rows, block.padded_rows, p.depth, width, q_rows);
    LoadRows(g.grad_output + token * g.grad_output_stride + at, g.grad_output_stride, block.rows, block.padded_rows, p.depth, width,
             grad_rows);
    Scores(p, task, block, q_rows, k_columns, scores);
    SmallMatmul<false>(block.padded_rows, keys, p.depth, grad_rows, width, int64_t{1}, v_columns, padded, grad_scores, padded);
    ProbabilityGradients(p, task, block, g, contiguous, grad_rows, scores, dropped, grad_scores);
    SmallMatmul<true>(keys, width, block.rows, dropped, int64_t{1}, padded, grad_rows, width, grad_v, width);
    SmallMatmul<true>(keys, width, block.rows, grad_scores, int64_t{1}, padded, q_rows, width, grad_k, width);
    SmallMatmul<false>(block.padded_rows, width, block.num_keys, grad_scores, padded, int64_t{1}, k_rows, width, grad_q, width);
    StoreRows(grad_q, block.rows, p.depth, width, p.scale, g.q + token * g.q_stride + at, g.q_stride);
  }
  StoreRows(grad_k, length, p.depth, width, p.scale, g.k + first * g.k_stride + at, g.k_stride);
  StoreRows(grad_v, length, p.depth, width, T(1), g.v + first * g.v_stride + at, g.v_stride);
}

// The token stride of a [T, H, D] view.
int64_t TokenStride(const ArrayView& view, const ArrayView& q) {
  const Shape& shape = view.shape;
  TANDEM_CHECK(shape.num_dims() == 3 && shape[1] == q.shape[1] && shape[2] == q.shape[2]) << shape << " and q " << q.shape;
  TANDEM_CHECK(shape[0] == 0 || (view.strides[2] == 1 && (shape[1] == 1 || view.strides[1] == shape[2])))
      << "strides " << view.strides << " of " << shape;
  return shape[0] <= 1 ? shape[1] * shape[2] : view.strides[0];
}

template <class T>
Problem<T> ProblemOf(const AttentionArgs& args) {
  const int64_t num_tokens = args.q.shape[0];
  TANDEM_CHECK_EQ(args.k.shape[0], num_tokens);
  TANDEM_CHECK_EQ(args.v.shape[0], num_tokens);
  TANDEM_CHECK_EQ(args.row_index.num_elements(), num_tokens);
  TANDEM_CHECK_GE(args.offsets.num_elements(), 1);
  TANDEM_CHECK(args.dropout >= 0 && args.dropout < 1) << args.dropout;
  TANDEM_CHECK(args.dropout == 0 || args.max_length > 0) << args.max_length;
  Problem<T> p;
  p.q = args.q.as<T>();
  p.k = args.k.as<T>();
  p.v = args.v.as<T>();
  p.q_stride = TokenStride(args.q, args.q);
  p.k_stride = TokenStride(args.k, args.q);
  p.v_stride = TokenStride(args.v, args.q);
  p.num_heads = args.q.shape[1];
  p.depth = args.q.shape[2];
  p.offsets = args.offsets.as<int64_t>();
  p.row_index = args.row_index.as<int64_t>();
  p.max_length = args.max_length;
  p.causal = args.causal;
  p.scale = static_cast<T>(args.scale);
  p.drop_threshold = args.dropout == 0 ? 0 : DropThreshold(args.dropout);
  p.keep_scale = static_cast<T>(1.0 / (1.0 - args.dropout));
  p.folded_key = FoldKey(args.key);
  p.step = args.step;
  const int64_t num_sequences = args.offsets.num_elements() - 1;
  TANDEM_CHECK(p.offsets[0] == 0 && p.offsets[num_sequences] == num_tokens)
      << p.offsets[0] << " to " << p.offsets[num_sequences] << " of " << num_tokens << " tokens";
  for (int64_t b = 0; b < num_sequences; ++b) TANDEM_CHECK_LE(p.offsets[b], p.offsets[b + 1]);
  return p;
}

// Calls run(task) for every head of every sequence that is not empty.
template <class T, class Run>
void ForEachTask(const Problem<T>& p, int64_t num_sequences, Stream& stream, const Run& run) {
  stream.pool().ParallelFor(num_sequences * p.num_heads, [&](int64_t index) {
    const int64_t sequence = index / p.num_heads, begin = p.offsets[sequence];
    const int64_t length = p.offsets[sequence + 1] - begin;
    if (length == 0) return;
    run(Task{index % p.num_heads, begin, length, RoundUp(length), RoundUp(p.depth)});
  });
}

}  // namespace

void AttentionForward(const AttentionForwardArgs& args, Stream& stream) {
  TANDEM_CHECK(args.output.is_dense() && args.output.shape == args.q.shape) << args.output.shape;
  TANDEM_CHECK_EQ(args.log_sum_exp.num_elements(), args.q.shape[0] * args.q.shape[1]);
  WithFloatType(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Problem<T> p = ProblemOf<T>(args);
    T *output = args.output.as<T>(), *log_sum_exp = args.log_sum_exp.as<T>();
    ForEachTask(p, args.offsets.num_elements() - 1, stream, [&](const Task& task) {
      T* scratch = Scratch<T>(ScratchSlot::TASK_A, ForwardScratch<T>(task));
      ForwardTask(p, task, scratch, output, log_sum_exp);
    });
  });
}

void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream) {
  TANDEM_CHECK_EQ(args.log_sum_exp.num_elements(), args.q.shape[0] * args.q.shape[1]);
  WithFloatType(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Problem<T> p = ProblemOf<T>(args);
    const Gradients<T> g{args.output.as<T>(), args.log_sum_exp.as<T>(), args.grad_output.as<T>(), args.grad_q.as<T>(),
                         args.grad_k.as<T>(), args.grad_v.as<T>(), TokenStride(args.output, args.q),
                         TokenStride(args.grad_output, args.q), TokenStride(args.grad_q, args.q),
                         TokenStride(args.grad_k, args.q), TokenStride(args.grad_v, args.q)};
    ForEachTask(p, args.offsets.num_elements() - 1, stream, [&](const Task& task) {
      T* scratch = Scratch<T>(ScratchSlot::TASK_A, BackwardScratch<T>(task));
      BackwardTask(p, task, g, scratch);
    });
  });
}

void CachedAttention(const CachedAttentionArgs& args, Stream& stream) {
  const int64_t num_queries = args.q.shape[0], num_keys = args.k.shape[0];
  TANDEM_CHECK(args.output.is_dense() && args.output.shape == args.q.shape) << args.output.shape;
  TANDEM_CHECK_EQ(args.v.shape[0], num_keys);
  TANDEM_CHECK_GE(num_keys, num_queries);
  if (num_queries == 0) return;
  WithFloatType(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    Problem<T> p{};
    p.q = args.q.as<T>();
    p.k = args.k.as<T>();
    p.v = args.v.as<T>();
    p.q_stride = TokenStride(args.q, args.q);
    p.k_stride = TokenStride(args.k, args.q);
    p.v_stride = TokenStride(args.v, args.q);
    p.num_heads = args.q.shape[1];
    p.depth = args.q.shape[2];
    p.causal = true;
    p.scale = static_cast<T>(args.scale);
    T* output = args.output.as<T>();
    stream.pool().ParallelFor(p.num_heads, [&](int64_t head) {
      const Task task{head, 0, num_keys, RoundUp(num_keys), RoundUp(p.depth), num_keys - num_queries};
      T* scratch = Scratch<T>(ScratchSlot::TASK_A, ForwardScratch<T>(task));
      ForwardTask(p, task, scratch, output, static_cast<T*>(nullptr));
    });
  });
}

}  // namespace tandem::kernels
