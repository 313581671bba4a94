#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/activation.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

struct Matrix {
  const Tensor& tensor;
  bool transpose = false;
};

// c = a b
void Multiply(Context& context, const Matrix& a, const Matrix& b, const Tensor& c) {
  kernels::Gemm({.a = a.tensor.view(),
                 .b = b.tensor.view(),
                 .c = c.view(),
                 .transpose_a = a.transpose,
                 .transpose_b = b.transpose},
                context.stream());
}

// The gradient of an operation's output, as an operand of both backward halves. The half that runs
// first makes it.
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

// The product of a linear layer: operands and result.
struct LinearProduct {
  Tensor rows, weight, bias;  // [R, In], [In, Out], [Out] (undefined: none)
  Tensor result;              // [..., Out]

  LinearProduct(Context& context, const Variable& x, const Variable& w, const Variable& b) {
    const int64_t in = x.shape()[-1], out = w.shape()[1];
    TANDEM_CHECK_EQ(w.shape().num_dims(), 2);
    TANDEM_CHECK_EQ(w.shape()[0], in);
    TANDEM_CHECK(!b.defined() || b.shape() == Shape{out}) << b.shape();
    rows = Operand(context, x).Reshape(Shape{x.shape().num_rows(), in});
    weight = Operand(context, w);
    Shape shape = x.shape();
    shape[-1] = out;
    result = context.Empty(shape, rows.dtype());
    bias = BiasFor(result.dtype(), b);
  }
  Shape flat_result() const { return {rows.dim(0), weight.dim(1)}; }
  kernels::GemmArgs args() const {
    return {.a = rows.view(),
            .b = weight.view(),
            .c = result.Reshape(flat_result()).view(),
            .bias = bias.defined() ? bias.view() : ArrayView()};
  }
};

// REQUIRES: the product has been, or will be, submitted.
Variable RecordLinear(Context& context, const Variable& x, const Variable& weight,
                      const Variable& bias, const LinearProduct& product) {
  const GradientOperand operand(product.flat_result());
  const SavedOperand rows(x, product.rows);
  FunctionParts parts;
  parts.inputs = {x};
  parts.backward_input = [operand, rows, w = SavedOperand(weight, product.weight),
                          flat = product.rows.shape(), node = x.node(), shape = x.shape(),
                          dtype = x.dtype()](Context& c, const Tensor& gradient) {
    rows.Start(c);  // travels during the product
    const Tensor dx = node->GradientMemory(c, shape, dtype);
    Multiply(c, {operand.Of(c, gradient)}, {w.Of(c), true}, dx.Reshape(flat));
    return std::vector<Tensor>{dx};
  };
  parts.weights = {weight};
  if (bias.defined()) parts.weights.push_back(bias);
  parts.backward_weight = [operand, rows, shape = weight.shape(), dtype = weight.dtype(),
                           node = weight.node(),
                           bias_node = bias.node()](Context& c, const Tensor& gradient) {
    const Tensor dy = operand.Of(c, gradient);
    std::vector<Tensor> gradients(2);
    if (node) {
      gradients[0] = node->GradientMemory(c, shape, dtype);
      Multiply(c, {rows.Of(c).Reshape(Shape{dy.dim(0), shape[0]}), true}, {dy}, gradients[0]);
    }
    if (bias_node) {
      gradients[1] = bias_node->GradientMemory(c, Shape{shape[1]}, dtype);
      kernels::ColumnSum(gradients[1].view(), dy.view(), false, c.stream());
    }
    return gradients;
  };
  return Record(context, "linear", product.result, std::move(parts));
}

}  // namespace

Variable Linear(Context& context, const Variable& x, const Variable& weight, const Variable& bias) {
  const LinearProduct product(context, x, weight, bias);
  kernels::Gemm(product.args(), context.stream());
  return RecordLinear(context, x, weight, bias, product);
}

Variable LinearActivate(Context& context, const Variable& x, const Variable& weight,
                        const Variable& bias, kernels::Activation activation) {
  const LinearProduct product(context, x, weight, bias);
  const Tensor activated = context.Empty(product.result.shape(), product.result.dtype());
  kernels::GemmActivate(product.args(), activated.Reshape(product.flat_result()).view(), activation,
                        context.stream());
  return RecordActivation(context, RecordLinear(context, x, weight, bias, product), activated,
                          activation);
}

Variable MatMulTransposed(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK_EQ(a.shape()[1], b.shape()[1]);
  const Tensor left = Operand(context, a), right = Operand(context, b);
  const DType dtype = left.dtype() == DType::BF16 ? DType::F32 : left.dtype();
  const Tensor c = context.Empty(Shape{a.shape()[0], b.shape()[0]}, dtype);
  Multiply(context, {left}, {right, true}, c);
  FunctionParts parts;
  parts.inputs = {a, b};
  parts.backward_input = [a_node = a.node(), b_node = b.node(), a_shape = a.shape(),
                          b_shape = b.shape(), a_dtype = a.dtype(), b_dtype = b.dtype(),
                          left = SavedOperand(a, left),
                          right = SavedOperand(b, right)](Context& c, const Tensor& gradient) {
    const Tensor dc = Operand(c, gradient);
    std::vector<Tensor> gradients(2);
    if (a_node) {
      gradients[0] = a_node->GradientMemory(c, a_shape, a_dtype);
      Multiply(c, {dc}, {right.Of(c)}, gradients[0]);
    }
    if (b_node) {
      gradients[1] = b_node->GradientMemory(c, b_shape, b_dtype);
      Multiply(c, {dc, true}, {left.Of(c)}, gradients[1]);
    }
    return gradients;
  };
  return Record(context, "matmul_transposed", c, std::move(parts));
}

}  // namespace tandem::ops
