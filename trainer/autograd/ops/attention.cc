#include "kernels/attention.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// Part 0 (queries), 1 (keys) or 2 (values) of qkv [T, 3 * heads * D], as [T, heads, D].
ArrayView PartOf(const Tensor& qkv, int part, int64_t heads) {
  const int64_t width = qkv.dim(1) / 3, dim = width / heads;
  ArrayView view = qkv.view();
  view.data =
      static_cast<char*>(view.data) + static_cast<size_t>(part * width) * SizeOf(qkv.dtype());
  return ArrayView(view.data, view.dtype, Shape{qkv.dim(0), heads, dim}, Shape{3 * width, dim, 1});
}

kernels::AttentionArgs CommonArgs(Context& context, const Tensor& qkv, const Tensor& offsets,
                                  const Tensor& row_index, const AttentionOptions& options) {
  kernels::AttentionArgs args;
  args.q = PartOf(qkv, 0, options.heads);
  args.k = PartOf(qkv, 1, options.heads);
  args.v = PartOf(qkv, 2, options.heads);
  args.offsets = offsets.view();
  args.row_index = row_index.view();
  args.max_length = options.max_length;
  args.causal = options.causal;
  args.scale = options.scale;
  args.dropout = context.training() ? options.dropout : 0;
  args.first_head = options.first_head;
  args.all_heads = options.all_heads;
  args.key = {context.seed(), options.operation};
  args.step = context.step();
  return args;
}

}  // namespace

Variable SelfAttention(Context& context, const Variable& qkv, const Tensor& offsets,
                       const Tensor& row_index, const AttentionOptions& options) {
  const int64_t tokens = qkv.shape()[0], width = qkv.shape()[1] / 3, dim = width / options.heads;
  TANDEM_CHECK_EQ(qkv.shape()[1], 3 * options.heads * dim);
  const Shape heads_shape{tokens, options.heads, dim};
  Tensor output = context.Empty(Shape{tokens, width}, qkv.dtype());
  Tensor log_sum_exp = context.Empty(Shape{tokens, options.heads}, StatisticsType(qkv.dtype()));
  kernels::AttentionForwardArgs forward{
      CommonArgs(context, qkv.value(), offsets, row_index, options),
      output.Reshape(heads_shape).view(), log_sum_exp.view()};
  kernels::AttentionForward(forward, context.stream());
  auto backward = [saved = qkv.value(), node = qkv.node(), offsets, row_index, options, output,
                   log_sum_exp, heads_shape](Context& c, const Tensor& gradient) {
    const Tensor doutput = OfType(c, gradient, saved.dtype()).Reshape(heads_shape);
    // Overwrites qkv if no other tensor shares it, so that fewer cache lines are touched.
    const bool in_place = saved.unique() && !c.stream().on_cuda();
    const Tensor dqkv = in_place ? saved : node->GradientMemory(c, saved.shape(), saved.dtype());
    kernels::AttentionBackwardArgs args{CommonArgs(c, saved, offsets, row_index, options),
                                        output.Reshape(heads_shape).view(),
                                        log_sum_exp.view(),
                                        doutput.view(),
                                        PartOf(dqkv, 0, options.heads),
                                        PartOf(dqkv, 1, options.heads),
                                        PartOf(dqkv, 2, options.heads)};
    kernels::AttentionBackward(args, c.stream());
    return std::vector<Tensor>{dqkv};
  };
  return Record(context, "self_attention", output, {.inputs = {qkv}, .backward_input = backward});
}

}  // namespace tandem::ops
