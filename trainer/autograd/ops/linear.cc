#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

struct Matrix {
  const Tensor& tensor;
  bool transpose = false;
};

// c = a b, plus a bias if it is defined.
void Multiply(Context& context, const Matrix& a, const Matrix& b, const Tensor& c, const Tensor& bias = Tensor()) {
  kernels::Gemm({.a = a.tensor.view(), .b = b.tensor.view(), .c = c.view(), .transpose_a = a.transpose,
                 .transpose_b = b.transpose, .bias = bias.defined() ? bias.view() : ArrayView()},
                context.stream());
}

// The gradient of an operation's output as an operand of both halves of the backward pass: made by the one that runs first.
class GradientOperand {
 public:
  explicit GradientOperand(Shape shape) : shape_(shape), operand_(std::make_shared<Tensor>()) {}

  Tensor Of(Context& context, const Tensor& gradient) const {
    if (!operand_->defined()) *operand_ = Operand(context, gradient).Reshape(shape_);
    return *operand_;
  }

 private:
  Shape shape_;
  std::shared_ptr<Tensor> operand_;
};

}  // namespace

Variable Linear(Context& context, const Variable& x, const Variable& weight, const Variable& bias) {
  const int64_t in = x.shape()[-1], out = weight.shape()[1];
  TANDEM_CHECK_EQ(weight.shape().num_dims(), 2);
  TANDEM_CHECK_EQ(weight.shape()[0], in);
  TANDEM_CHECK(!bias.defined() || bias.shape() == Shape{out}) << bias.shape();
  const Shape flat{x.shape().num_rows(), in}, flat_out{x.shape().num_rows(), out};
  Shape result = x.shape();
  result[-1] = out;
  const Tensor rows = Operand(context, x).Reshape(flat), w = Operand(context, weight);
  const Tensor y = context.Empty(flat_out, rows.dtype());
  Multiply(context, {rows}, {w}, y, BiasFor(y.dtype(), bias));

  const GradientOperand operand(flat_out);
  FunctionParts parts;
  parts.inputs = {x};
  parts.backward_input = [operand, w, flat, node = x.node(), shape = x.shape(), dtype = x.dtype()](
                             Context& c, const Tensor& gradient) {
    const Tensor dx = node->GradientMemory(c, shape, dtype);
    Multiply(c, {operand.Of(c, gradient)}, {w, true}, dx.Reshape(flat));
    return std::vector<Tensor>{dx};
  };
  parts.weights = {weight};
  if (bias.defined()) parts.weights.push_back(bias);
  parts.backward_weight = [operand, rows, shape = weight.shape(), dtype = weight.dtype(), node = weight.node(),
                           bias_node = bias.node()](Context& c, const Tensor& gradient) {
    const Tensor dy = operand.Of(c, gradient);
    std::vector<Tensor> gradients(2);
    if (node) {
      gradients[0] = node->GradientMemory(c, shape, dtype);
      Multiply(c, {rows, true}, {dy}, gradients[0]);
    }
    if (bias_node) {
      gradients[1] = bias_node->GradientMemory(c, Shape{shape[1]}, dtype);
      kernels::ColumnSum(gradients[1].view(), dy.view(), false, c.stream());
    }
    return gradients;
  };
  return Record(context, "linear", y.Reshape(result), std::move(parts));
}

Variable MatMulTransposed(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK_EQ(a.shape()[1], b.shape()[1]);
  const Tensor left = Operand(context, a), right = Operand(context, b);
  const DType dtype = left.dtype() == DType::BF16 ? DType::F32 : left.dtype();
  const Tensor c = context.Empty(Shape{a.shape()[0], b.shape()[0]}, dtype);
  Multiply(context, {left}, {right, true}, c);
  FunctionParts parts;
  parts.inputs = {a, b};
  parts.backward_input = [a_node = a.node(), b_node = b.node(), a_shape = a.shape(), b_shape = b.shape(), a_dtype = a.dtype(),
                          b_dtype = b.dtype(), left, right](Context& c, const Tensor& gradient) {
    const Tensor dc = Operand(c, gradient);
    std::vector<Tensor> gradients(2);
    if (a_node) {
      gradients[0] = a_node->GradientMemory(c, a_shape, a_dtype);
      Multiply(c, {dc}, {right}, gradients[0]);
    }
    if (b_node) {
      gradients[1] = b_node->GradientMemory(c, b_shape, b_dtype);
      Multiply(c, {dc, true}, {left}, gradients[1]);
    }
    return gradients;
  };
  return Record(context, "matmul_transposed", c, std::move(parts));
}

}  // namespace tandem::ops
