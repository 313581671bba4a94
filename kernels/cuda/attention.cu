#include "kernels/cuda/attention/problem.cuh"

// The device side of kernels/attention.h: arguments, the choice between tensor cores and f32
// arithmetic, and the row sums that a backward pass needs first.
namespace tandem::kernels::cuda {

namespace {

constexpr int kMaxDepth = 128, kStatisticsThreads = 256;

// Computes statistics[head, token] of rows [token, head]. `lanes` neighbouring lanes, a power of
// two, share a row.
template <class S, int kCount>
__global__ void RowStatisticsKernel(TokenRows<const S> output, TokenRows<const S> grad_output,
                                    const float* log_sum_exp, int64_t num_tokens, int num_heads,
                                    int depth, int lanes, RowStatistics* statistics) {
  const int lane = static_cast<int>(threadIdx.x) % lanes,
            rows_per_block = kStatisticsThreads / lanes;
  const int64_t num_rows = num_tokens * num_heads;
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * rows_per_block + static_cast<int>(threadIdx.x) / lanes;
  // All lanes of a warp take the same number of turns.
  for (int64_t block_row = first - first % rows_per_block; block_row < num_rows;
       block_row += static_cast<int64_t>(gridDim.x) * rows_per_block) {
    const int64_t row = block_row + first % rows_per_block, token = row / num_heads;
    const int head = static_cast<int>(row - token * num_heads);
    float sum = 0;
    for (int d = lane * kCount; row < num_rows && d < depth; d += lanes * kCount) {
      const auto x = Pack<S, kCount>::At(output.At(token, head, depth) + d);
      const auto y = Pack<S, kCount>::At(grad_output.At(token, head, depth) + d);
      for (int i = 0; i < kCount; ++i) sum = fmaf(Load(x.values[i]), Load(y.values[i]), sum);
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    if (lane == 0 && row < num_rows)
      statistics[head * num_tokens + token] = {log_sum_exp[row], sum};
  }
}

template <class S, int kCount>
void FillStatistics(const AttentionBackwardArgs& args, const TokenRows<const S>& output,
                    const BackwardProblem<S>& p, RowStatistics* statistics, Stream& stream) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kCount < p.shape.depth) lanes *= 2;
  constexpr int64_t kMaxBlocks = 1 << 16;
  const int64_t blocks =
      CeilDiv(p.shape.num_tokens * p.shape.num_heads, kStatisticsThreads / lanes);
  const Grid grid{static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
                  kStatisticsThreads};
  Launch(stream, {"attention_backward", args.q}, grid, RowStatisticsKernel<S, kCount>, output,
         p.grad_output, args.log_sum_exp.as<float>(), p.shape.num_tokens, p.shape.num_heads,
         p.shape.depth, lanes, statistics);
}

template <class S>
TokenRows<S> RowsOf(const ArrayView& view) {
  return {view.as<std::remove_const_t<S>>(),
          view.shape[0] <= 1 ? view.shape[1] * view.shape[2] : view.strides[0]};
}

// CHECKs that the [T, heads, D] arrays of the kernels match `model`.
void CheckRows(const ArrayView& model, std::initializer_list<const ArrayView*> views) {
  for (const ArrayView* view : views) {
    const Shape &shape = view->shape, &strides = view->strides;
    TANDEM_CHECK(shape == model.shape) << shape << " and " << model.shape;
    TANDEM_CHECK(strides[2] == 1 && (shape[1] == 1 || strides[1] == shape[2]))
        << "strides " << strides << " of " << shape;
    TANDEM_CHECK(shape[0] == 1 || strides[0] >= shape[1] * shape[2])
        << "strides " << strides << " of " << shape;
  }
}

// CHECKs that heads of q can share the heads of k.
void CheckSharing(const ArrayView& q, const ArrayView& k) {
  const Shape& shape = k.shape;
  TANDEM_CHECK(shape.num_dims() == 3 && shape[0] == q.shape[0] && shape[1] > 0 &&
               q.shape[1] % shape[1] == 0 && shape[2] == q.shape[2])
      << shape << " and q " << q.shape;
}

AttentionShape ShapeOf(const AttentionArgs& args, const ArrayView& log_sum_exp, Stream& stream) {
  constexpr double kLog2E = 1.44269504088896340736;
  const Shape& shape = args.q.shape;
  const int64_t num_sequences = args.offsets.num_elements() - 1;
  TANDEM_CHECK_LE(shape[2], kMaxDepth)
      << "heads of " << shape[2] << " elements; on CUDA they have 1 to " << kMaxDepth;
  TANDEM_CHECK_LE(shape[1], 65535);
  TANDEM_CHECK(num_sequences > 0) << "no sequence holds the " << shape[0] << " tokens";
  TANDEM_CHECK_EQ(args.row_index.num_elements(), shape[0]);
  TANDEM_CHECK_EQ(log_sum_exp.num_elements(), shape[0] * shape[1]);
  TANDEM_CHECK(log_sum_exp.is_dense() && args.offsets.is_dense() && args.row_index.is_dense())
      << log_sum_exp.strides << ", " << args.offsets.strides << ", " << args.row_index.strides;
  TANDEM_CHECK(args.scale > 0) << args.scale;  // a positive scale keeps the order of scores
  TANDEM_CHECK(args.dropout >= 0 && args.dropout < 1) << args.dropout;
  TANDEM_CHECK(args.dropout == 0 || args.max_length > 0) << args.max_length;
  const int64_t all_heads = args.all_heads > 0 ? args.all_heads : shape[1];
  TANDEM_CHECK(args.first_head >= 0 && args.first_head + shape[1] <= all_heads)
      << shape[1] << " heads from " << args.first_head << " of " << all_heads;
  const uint32_t threshold = DropThreshold(args.dropout);
  const uint64_t* const step = threshold == 0 ? nullptr : stream.StepOnDevice(args.step);
  const DropoutMask mask{FoldKey(args.key), step, args.max_length, threshold << 16,
                         static_cast<float>(KeepScale(threshold))};
  const auto scale = static_cast<float>(args.scale);
  return {args.offsets.as<int64_t>(),
          args.row_index.as<int64_t>(),
          shape[0],
          num_sequences,
          static_cast<int>(shape[1]),
          static_cast<int>(shape[1] / args.k.shape[1]),
          static_cast<int>(shape[2]),
          static_cast<int>(args.first_head),
          static_cast<int>(all_heads),
          args.causal,
          scale,
          scale * static_cast<float>(kLog2E),
          mask};
}

// True if every row of every head is aligned to 16 bytes and is whole packs of 16 bytes.
template <class S>
bool AllTakePacks(const AttentionShape& shape, std::initializer_list<const ArrayView*> views) {
  bool all = shape.depth % kPackOf<S> == 0;
  for (const ArrayView* view : views)
    all = all && TakesPacks<S>(view->data, RowsOf<const S>(*view).stride);
  return all;
}

// `heads`: k in a backward pass, where key blocks are the fewest; else q.
bool SuitTallBlocks(const AttentionArgs& args, const ArrayView& heads) {
  return TakesTallBlocks(args.q.shape[0], args.offsets.num_elements() - 1, heads.shape[1]);
}

}  // namespace

void AttentionForward(const AttentionForwardArgs& args, bool tall, Stream& stream) {
  if (args.q.num_elements() == 0) return;
  CheckSharing(args.q, args.k);
  CheckRows(args.q, {&args.q, &args.output});
  CheckRows(args.k, {&args.k, &args.v});
  WithDeviceType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    const ForwardProblem<S> p{ShapeOf(args, args.log_sum_exp, stream),
                              RowsOf<const S>(args.q),
                              RowsOf<const S>(args.k),
                              RowsOf<const S>(args.v),
                              RowsOf<S>(args.output),
                              args.log_sum_exp.as<float>()};
    const bool packs = AllTakePacks<S>(p.shape, {&args.q, &args.k, &args.v, &args.output});
    if constexpr (std::is_same_v<S, BFloat16>) {
      if (packs) return TensorCoreForward(p, args, tall, stream);
    }
    FloatForward(p, args, packs, stream);
  });
}

void AttentionBackward(const AttentionBackwardArgs& args, bool tall, Stream& stream) {
  if (args.q.num_elements() == 0) return;
  CheckSharing(args.q, args.k);
  CheckRows(args.q, {&args.q, &args.output, &args.grad_output, &args.grad_q});
  CheckRows(args.k, {&args.k, &args.v, &args.grad_k, &args.grad_v});
  WithDeviceType(args.q.dtype, [&](auto zero) {
    using S = decltype(zero);
    const AttentionShape shape = ShapeOf(args, args.log_sum_exp, stream);
    const int64_t num_rows = shape.num_tokens * shape.num_heads;
    const std::shared_ptr<Buffer> scratch =
        DeviceScratch(stream, static_cast<size_t>(num_rows) * sizeof(RowStatistics));
    auto* const statistics = static_cast<RowStatistics*>(scratch->data());
    const BackwardProblem<S> p{shape,
                               RowsOf<const S>(args.q),
                               RowsOf<const S>(args.k),
                               RowsOf<const S>(args.v),
                               RowsOf<const S>(args.grad_output),
                               RowsOf<S>(args.grad_q),
                               RowsOf<S>(args.grad_k),
                               RowsOf<S>(args.grad_v),
                               statistics};
    const bool packs =
        AllTakePacks<S>(shape, {&args.q, &args.k, &args.v, &args.output, &args.grad_output,
                                &args.grad_q, &args.grad_k, &args.grad_v});
    const auto output = RowsOf<const S>(args.output);
    if (packs)
      FillStatistics<S, kPackOf<S>>(args, output, p, statistics, stream);
    else
      FillStatistics<S, 1>(args, output, p, statistics, stream);
    if constexpr (std::is_same_v<S, BFloat16>) {
      if (packs) return TensorCoreBackward(p, args, tall, stream);
    }
    FloatBackward(p, args, packs, stream);
  });
}

void AttentionForward(const AttentionForwardArgs& args, Stream& stream) {
  AttentionForward(args, SuitTallBlocks(args, args.q), stream);
}
void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream) {
  AttentionBackward(args, SuitTallBlocks(args, args.k), stream);
}

}  // namespace tandem::kernels::cuda
