#include "kernels/attention.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// Heads of rows [T, ...], from column `begin` on, as [T, heads, width].
ArrayView HeadsOf(const Tensor& rows, int64_t begin, int64_t heads, int64_t width) {
  char* const data =
      static_cast<char*>(rows.raw()) + static_cast<size_t>(begin) * SizeOf(rows.dtype());
  return ArrayView(data, rows.dtype(), Shape{rows.dim(0), heads, width},
                   Shape{rows.dim(1), width, 1});
}

// The arrays of queries, and of keys and values. They are one array if one projection made both.
struct Arrays {
  Tensor queries, keys_values;

  bool is_one() const { return !keys_values.defined(); }
  ArrayView q(const AttentionOptions& options, int64_t width) const {
    return HeadsOf(queries, 0, options.heads, width);
  }
  // Part 0: keys; 1: values.
  ArrayView part(int number, const AttentionOptions& options, int64_t width) const {
    const int64_t columns = options.kv_heads * width,
                  begin = (is_one() ? options.heads * width : 0) + number * columns;
    return HeadsOf(is_one() ? queries : keys_values, begin, options.kv_heads, width);
  }
};

kernels::AttentionArgs CommonArgs(Context& context, const Arrays& arrays, int64_t width,
                                  const Tensor& offsets, const Tensor& row_index,
                                  const AttentionOptions& options) {
  kernels::AttentionArgs args;
  args.q = arrays.q(options, width);
  args.k = arrays.part(0, options, width);
  args.v = arrays.part(1, options, width);
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

// Memory for the gradient of `x`.
Tensor GradientOf(Context& context, const std::shared_ptr<Node>& node, const Tensor& x) {
  if (!x.defined()) return Tensor();
  return node != nullptr ? node->GradientMemory(context, x.shape(), x.dtype())
                         : context.Empty(x.shape(), x.dtype());
}

}  // namespace

Variable SelfAttention(Context& context, const Variable& queries, const Variable& keys_values,
                       const Tensor& offsets, const Tensor& row_index,
                       const AttentionOptions& given) {
  AttentionOptions options = given;
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  const int64_t tokens = queries.shape()[0],
                parts =
                    keys_values.defined() ? options.heads : options.heads + 2 * options.kv_heads,
                width = queries.shape()[1] / parts;
  TANDEM_CHECK_EQ(queries.shape()[1], parts * width);
  TANDEM_CHECK(!keys_values.defined() ||
               keys_values.shape() == (Shape{tokens, 2 * options.kv_heads * width}))
      << keys_values.shape();
  const Shape heads_shape{tokens, options.heads, width};
  const Tensor output = context.Empty(Shape{tokens, options.heads * width}, queries.dtype()),
               log_sum_exp =
                   context.Empty(Shape{tokens, options.heads}, StatisticsType(queries.dtype()));
  const Arrays arrays{queries.value(), keys_values.value()};
  kernels::AttentionForward({CommonArgs(context, arrays, width, offsets, row_index, options),
                             output.Reshape(heads_shape).view(), log_sum_exp.view()},
                            context.stream());
  auto backward = [arrays, q_node = queries.node(), kv_node = keys_values.node(), offsets,
                   row_index, options, output, log_sum_exp, heads_shape,
                   width](Context& c, const Tensor& gradient) {
    const Tensor doutput = OfType(c, gradient, arrays.queries.dtype()).Reshape(heads_shape);
    // Overwrites the arrays if no other tensor shares them, so that fewer cache lines are touched.
    const bool in_place = arrays.queries.unique() &&
                          (arrays.is_one() || arrays.keys_values.unique()) && !c.stream().on_cuda();
    const Arrays gradients = in_place ? arrays
                                      : Arrays{GradientOf(c, q_node, arrays.queries),
                                               GradientOf(c, kv_node, arrays.keys_values)};
    kernels::AttentionBackward(
        {CommonArgs(c, arrays, width, offsets, row_index, options),
         output.Reshape(heads_shape).view(), log_sum_exp.view(), doutput.view(),
         gradients.q(options, width), gradients.part(0, options, width),
         gradients.part(1, options, width)},
        c.stream());
    return std::vector<Tensor>{gradients.queries, gradients.keys_values};
  };
  return Record(context, "self_attention", output,
                {.inputs = {queries, keys_values}, .backward_input = backward});
}

}  // namespace tandem::ops
