#include "kernels/attention.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>

#include "kernels/cpu/attention/tiles.h"
#include "kernels/cpu/attention/vector.h"
#include "kernels/cpu/attention/walk.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/kernel_span.h"

// Checks shapes and types, and splits attention into one task per (sequence, head).
// attention/walk.h computes.
namespace tandem::kernels {

namespace {

// The rows of a [T, G, D] view with q's D, whose heads q's heads share.
template <class S>
TokenRows<S> RowsOf(const ArrayView& view, const ArrayView& q) {
  const Shape& shape = view.shape;
  TANDEM_CHECK(shape.num_dims() == 3 && shape[1] > 0 && q.shape[1] % shape[1] == 0 &&
               shape[2] == q.shape[2])
      << shape << " and q " << q.shape;
  TANDEM_CHECK(shape[0] == 0 ||
               (view.strides[2] == 1 && (shape[1] == 1 || view.strides[1] == shape[2])))
      << "strides " << view.strides << " of " << shape;
  TANDEM_CHECK(shape[0] <= 1 || view.strides[0] >= shape[1] * shape[2])
      << "strides " << view.strides << " of " << shape;
  return {view.as<std::remove_const_t<S>>(), shape[0] <= 1 ? shape[1] * shape[2] : view.strides[0],
          q.shape[1] / shape[1]};
}

template <class S>
AttentionProblem<S> ProblemOf(const ArrayView& q, const ArrayView& k, const ArrayView& v,
                              const ArrayView& output, double scale) {
  AttentionProblem<S> p;
  TANDEM_CHECK(k.shape == v.shape) << k.shape << " and " << v.shape;
  TANDEM_CHECK(output.shape == q.shape) << output.shape << " and " << q.shape;
  p.q = RowsOf<const S>(q, q);
  p.k = RowsOf<const S>(k, q);
  p.v = RowsOf<const S>(v, q);
  p.output = RowsOf<S>(output, q);
  p.num_heads = q.shape[1];
  p.depth = q.shape[2];
  TANDEM_CHECK(scale > 0) << scale;  // a positive scale keeps the order of scores
  p.scale = static_cast<Compute<S>>(scale);
  return p;
}

template <class S>
AttentionProblem<S> ProblemOf(const AttentionArgs& args, const ArrayView& output,
                              const ArrayView& log_sum_exp) {
  AttentionProblem<S> p = ProblemOf<S>(args.q, args.k, args.v, output, args.scale);
  const int64_t num_tokens = args.q.shape[0];
  TANDEM_CHECK_EQ(args.k.shape[0], num_tokens);
  TANDEM_CHECK_EQ(args.row_index.num_elements(), num_tokens);
  TANDEM_CHECK_EQ(log_sum_exp.num_elements(), num_tokens * p.num_heads);
  TANDEM_CHECK(log_sum_exp.is_dense() && args.offsets.is_dense() && args.row_index.is_dense())
      << log_sum_exp.strides << ", " << args.offsets.strides << ", " << args.row_index.strides;
  TANDEM_CHECK_GE(args.offsets.num_elements(), 1);
  TANDEM_CHECK(args.dropout >= 0 && args.dropout < 1) << args.dropout;
  TANDEM_CHECK(args.dropout == 0 || args.max_length > 0) << args.max_length;
  p.first_head = args.first_head;
  p.all_heads = args.all_heads > 0 ? args.all_heads : p.num_heads;
  TANDEM_CHECK(args.first_head >= 0 && args.first_head + p.num_heads <= p.all_heads)
      << p.num_heads << " heads from " << args.first_head << " of " << p.all_heads;
  p.log_sum_exp = log_sum_exp.as<Compute<S>>();
  p.causal = args.causal;
  p.offsets = args.offsets.as<int64_t>();
  p.row_index = args.row_index.as<int64_t>();
  p.max_length = args.max_length;
  p.drop_threshold = DropThreshold(args.dropout);
  p.keep_scale = static_cast<Compute<S>>(KeepScale(p.drop_threshold));
  p.keys = RoundKeys(FoldKey(args.key));
  p.step = args.step;
  const int64_t num_sequences = args.offsets.num_elements() - 1;
  TANDEM_CHECK(p.offsets[0] == 0 && p.offsets[num_sequences] == num_tokens)
      << p.offsets[0] << " to " << p.offsets[num_sequences] << " of " << num_tokens << " tokens";
  for (int64_t b = 0; b < num_sequences; ++b) TANDEM_CHECK_LE(p.offsets[b], p.offsets[b + 1]);
  return p;
}

// Calls body(type_identity<Products>{}): TileProducts if the processor has tiles that take the
// storage type, else VectorProducts.
template <class S, class Body>
void WithProducts(const AttentionProblem<S>& p, const Body& body) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (TileProducts::Takes(p.depth)) return body(std::type_identity<TileProducts>{});
  }
  body(std::type_identity<VectorProducts<S>>{});
}

// Runs every head of every sequence that is not empty. Concurrent threads work on different
// sequences. Heads of one sequence are neighbours in memory. So another core's hardware prefetcher
// would fetch lines that this thread writes.
template <class Products, class S>
void RunTasks(const AttentionProblem<S>& p, int64_t num_sequences, bool backward, Stream& stream) {
  const int64_t num_tasks = num_sequences * p.num_heads, num_threads = stream.pool().num_threads();
  const auto task_at = [&](int64_t index) {
    if (index >= num_tasks) return AttentionTask();
    const int64_t group = index / (num_threads * p.num_heads) * num_threads,
                  in_group = index - group * p.num_heads;
    const int64_t sequences = std::min(num_threads, num_sequences - group),
                  sequence = group + in_group % sequences;
    const int64_t begin = p.offsets[sequence], length = p.offsets[sequence + 1] - begin;
    return AttentionTask{in_group / sequences,
                         begin,
                         length,
                         begin,
                         length,
                         Products::BlockQueries(length, backward)};
  };
  stream.pool().ParallelFor(num_tasks, [&](int64_t index) {
    const AttentionTask task = task_at(index), next = task_at(index + num_threads);
    if (task.num_queries == 0) return;
    AttentionWalk<S, Products> walk(p, task, next, backward);
    if (backward)
      walk.Backward();
    else
      walk.Forward();
  });
}

// Gradients of keys or values with a head for each head of q. Heads that are shared are summed into
// `to`, [T, G, D].
class SharedGradients {
 public:
  SharedGradients(const ArrayView& to, const ArrayView& q)
      : to_(to), memory_(Buffer::Allocate(q.num_elements() * SizeOf(q.dtype), Device{})) {
    view_ = ArrayView(memory_->data(), q.dtype, q.shape);
  }
  const ArrayView& view() const { return view_; }

  template <class S>
  void Sum(Stream& stream) const {
    const int64_t heads = view_.shape[1], depth = view_.shape[2], sharing = heads / to_.shape[1];
    const S* const from = view_.as<S>();
    ParallelRows(stream, to_.shape[0], heads * depth, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t g = 0; g < to_.shape[1]; ++g) {
          const S* const first = from + (t * heads + g * sharing) * depth;
          S* const to = to_.as<S>() + t * to_.strides[0] + g * depth;
          for (int64_t i = 0; i < depth; ++i) {
            Compute<S> sum = Load(first[i]);
            for (int64_t h = 1; h < sharing; ++h) sum += Load(first[h * depth + i]);
            to[i] = Store<S>(sum);
          }
        }
      }
    });
  }

 private:
  ArrayView to_, view_;
  std::shared_ptr<Buffer> memory_;
};

// The work of a pass, per visible pair of query and key. Besides products, a pair takes vector
// instructions: 13 for an exponential (11 if rounded to bf16), 2 for maximum and sum, 3 for the
// gradient of the score. A mask takes its random bits and 2, or 3 if applied twice.
struct PairWork {
  int products, instructions, mask_instructions;
};
constexpr PairWork kForwardWork{2, 15, kDropoutBitsInstructions + 2},
    kBackwardWork{5, 16, kDropoutBitsInstructions + 3},
    kRoundedBackwardWork{5, 14, kDropoutBitsInstructions + 3};

double PairsOf(double length, bool causal) {
  return causal ? length * (length + 1) / 2 : length * length;
}

// The visible pairs of one head. On a device, where the lengths lie, assumes that all sequences
// have the maximum length.
double NumPairs(const AttentionArgs& args, const Stream& stream) {
  if (stream.on_cuda()) {
    const double longest = static_cast<double>(std::max<int64_t>(1, args.max_length));
    return static_cast<double>(args.q.shape[0]) / longest * PairsOf(longest, args.causal);
  }
  const int64_t* offsets = args.offsets.as<int64_t>();
  double pairs = 0;
  for (int64_t b = 0; b + 1 < args.offsets.num_elements(); ++b) {
    pairs += PairsOf(static_cast<double>(offsets[b + 1] - offsets[b]), args.causal);
  }
  return pairs;
}

KernelSpan SpanOf(const char* name, const AttentionArgs& args, const PairWork& work, double bytes,
                  Stream& stream) {
  if (stream.tracer() == nullptr) return KernelSpan(stream, SpanKind::ATTENTION, name);
  const double pairs = NumPairs(args, stream) * static_cast<double>(args.q.shape[1]);
  const int instructions = work.instructions + (args.dropout > 0 ? work.mask_instructions : 0);
  return KernelSpan(stream, SpanKind::ATTENTION, name,
                    2 * pairs * static_cast<double>(work.products * args.q.shape[2]), bytes,
                    2 * pairs * instructions);
}

}  // namespace

void AttentionForward(const AttentionForwardArgs& args, Stream& stream) {
  TANDEM_CHECK(args.output.is_dense()) << args.output.strides;
  const double bytes = static_cast<double>(4 * args.q.num_bytes() + args.log_sum_exp.num_bytes());
  const KernelSpan span = SpanOf("attention_forward", args, kForwardWork, bytes, stream);
  if (stream.on_cuda()) return cuda::AttentionForward(args, stream);
  WithStorageType(args.q.dtype, [&](auto zero) {
    const auto p = ProblemOf<decltype(zero)>(args, args.output, args.log_sum_exp);
    WithProducts(p, [&](auto products) {
      RunTasks<typename decltype(products)::type>(p, args.offsets.num_elements() - 1, false,
                                                  stream);
    });
  });
}

void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream) {
  const double bytes = static_cast<double>(8 * args.q.num_bytes() + args.log_sum_exp.num_bytes());
  const bool rounded =
      !stream.on_cuda() && args.q.dtype == DType::BF16 && TileProducts::Takes(args.q.shape[2]);
  const KernelSpan span = SpanOf("attention_backward", args,
                                 rounded ? kRoundedBackwardWork : kBackwardWork, bytes, stream);
  if (stream.on_cuda()) return cuda::AttentionBackward(args, stream);
  WithStorageType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    AttentionProblem<S> p = ProblemOf<S>(args, args.output, args.log_sum_exp);
    for (const ArrayView* view : {&args.grad_output, &args.grad_q, &args.grad_k, &args.grad_v}) {
      TANDEM_CHECK_EQ(view->shape[0], args.q.shape[0]);
    }
    p.grad_output = RowsOf<const S>(args.grad_output, args.q);
    p.grad_q = RowsOf<S>(args.grad_q, args.q);
    std::optional<SharedGradients> k, v;
    if (args.k.shape[1] < args.q.shape[1]) {
      k.emplace(args.grad_k, args.q);
      v.emplace(args.grad_v, args.q);
    }
    p.grad_k = RowsOf<S>(k ? k->view() : args.grad_k, args.q);
    p.grad_v = RowsOf<S>(v ? v->view() : args.grad_v, args.q);
    WithProducts(p, [&](auto products) {
      RunTasks<typename decltype(products)::type>(p, args.offsets.num_elements() - 1, true, stream);
    });
    if (k) k->Sum<S>(stream);
    if (v) v->Sum<S>(stream);
  });
}

void CachedAttention(const CachedAttentionArgs& args, Stream& stream) {
  const int64_t num_queries = args.q.shape[0], num_keys = args.k.shape[0];
  TANDEM_CHECK(!stream.on_cuda()) << "no CUDA kernel";
  TANDEM_CHECK(args.output.is_dense()) << args.output.strides;
  TANDEM_CHECK_GE(num_keys, num_queries);
  const double pairs =
      static_cast<double>(num_queries) * (static_cast<double>(2 * num_keys - num_queries + 1) / 2);
  const KernelSpan span(stream, SpanKind::ATTENTION, "cached_attention",
                        4 * pairs * static_cast<double>(args.q.shape[1] * args.q.shape[2]),
                        static_cast<double>(2 * args.q.num_bytes() + 2 * args.k.num_bytes()));
  if (num_queries == 0) return;
  WithStorageType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto p = ProblemOf<S>(args.q, args.k, args.v, args.output, args.scale);
    WithProducts(p, [&](auto products) {
      stream.pool().ParallelFor(p.num_heads, [&](int64_t head) {
        const AttentionTask task{head, 0, num_queries, 0, num_keys}, none;
        AttentionWalk<S, typename decltype(products)::type>(p, task, none, false).Forward();
      });
    });
  });
}

}  // namespace tandem::kernels
