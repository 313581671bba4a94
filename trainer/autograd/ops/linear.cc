#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

Tensor Product(Context& context, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const int64_t m = a.dim(transpose_a ? 1 : 0), n = b.dim(transpose_b ? 0 : 1);
  Tensor c = Tensor::Empty(Shape{m, n}, a.dtype());
  kernels::Gemm({.a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = transpose_a, .transpose_b = transpose_b},
                context.stream());
  return c;
}

}  // namespace

Variable Linear(Context& context, const Variable& x, const Variable& weight, const Variable& bias) {
  const int64_t in = x.shape()[-1], out = weight.shape()[1];
  TANDEM_CHECK_EQ(weight.shape().num_dims(), 2);
  TANDEM_CHECK_EQ(weight.shape()[0], in);
  const Shape flat{x.shape().num_rows(), in};
  Shape result = x.shape();
  result[-1] = out;
  const Tensor rows = x.value().Reshape(flat);
  Tensor y = Product(context, rows, false, weight.value(), false);
  if (bias.defined()) {
    TANDEM_CHECK(bias.shape() == Shape{out}) << bias.shape();
    kernels::AddBias(y.view(), y.view(), bias.value().view(), context.stream());
  }
  FunctionParts parts;
  parts.inputs = {x};
  parts.backward_input = [w = weight.value(), shape = x.shape(), out](Context& c, const Tensor& gradient) {
    const Tensor rows = gradient.Reshape(Shape{gradient.shape().num_rows(), out});
    return std::vector<Tensor>{Product(c, rows, false, w, true).Reshape(shape)};
  };
  parts.weights = {weight};
  if (bias.defined()) parts.weights.push_back(bias);
  parts.backward_weight = [rows, out, with_bias = bias.requires_gradient()](Context& c, const Tensor& gradient) {
    const Tensor dy = gradient.Reshape(Shape{gradient.shape().num_rows(), out});
    std::vector<Tensor> gradients{Product(c, rows, true, dy, false)};
    if (with_bias) {
      gradients.push_back(Tensor::Empty(Shape{out}, dy.dtype()));
      kernels::ColumnSum(gradients[1].view(), dy.view(), false, c.stream());
    }
    return gradients;
  };
  return Record(context, "linear", y.Reshape(result), std::move(parts));
}

Variable MatMulTransposed(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK_EQ(a.shape()[1], b.shape()[1]);
  Tensor c = Product(context, a.value(), false, b.value(), true);
  FunctionParts parts;
  parts.inputs = {a, b};
  parts.backward_input = [a, b](Context& c, const Tensor& gradient) {
    std::vector<Tensor> gradients(2);
    if (a.requires_gradient()) gradients[0] = Product(c, gradient, false, b.value(), false);
    if (b.requires_gradient()) gradients[1] = Product(c, gradient, true, a.value(), false);
    return gradients;
  };
  return Record(context, "matmul_transposed", c, std::move(parts));
}

}  // namespace tandem::ops
