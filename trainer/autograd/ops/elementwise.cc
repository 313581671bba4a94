#include "kernels/elementwise.h"

#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/activation.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable Add(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK(a.shape() == b.shape()) << a.shape() << " vs " << b.shape();
  Tensor y = context.Empty(a.shape(), a.dtype() == DType::BF16 ? b.dtype() : a.dtype());
  kernels::Add(y.view(), a.value().view(), b.value().view(), context.stream());
  const auto backward = [a_type = a.dtype(), b_type = b.dtype(), a_needs = a.requires_gradient(),
                         b_needs = b.requires_gradient()](Context& c, const Tensor& gradient) {
    return std::vector<Tensor>{a_needs ? OfType(c, gradient, a_type) : Tensor(),
                               b_needs ? OfType(c, gradient, b_type) : Tensor()};
  };
  return Record(context, "add", y, {.inputs = {a, b}, .backward_input = backward});
}

Variable Sum(Context& context, const Residual& rows) {
  if (!rows.y.defined()) return rows.x;
  return Add(context, rows.x,
             Dropout(context, rows.y, rows.row_index, rows.dropout, rows.operation));
}

Variable AddBias(Context& context, const Variable& x, const Variable& bias) {
  const Shape row{x.shape()[-1]};
  TANDEM_CHECK(bias.shape() == row) << bias.shape() << " to " << x.shape();
  const Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::AddBias(y.view(), x.value().view(), BiasFor(x.dtype(), bias).view(), context.stream());
  const auto backward = [node = bias.node(), row, dtype = bias.dtype()](Context& c,
                                                                        const Tensor& gradient) {
    Tensor of_bias;
    if (node) {
      of_bias = node->GradientMemory(c, row, dtype);
      const Shape flat{gradient.shape().num_rows(), row[0]};
      kernels::ColumnSum(of_bias.view(), gradient.Reshape(flat).view(), false, c.stream());
    }
    return std::vector<Tensor>{gradient, of_bias};
  };
  return Record(context, "add_bias", y, {.inputs = {x, bias}, .backward_input = backward});
}

Variable Multiply(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK(a.shape() == b.shape()) << a.shape() << " vs " << b.shape();
  const auto product = [](Context& c, const Tensor& x, const Tensor& y) {
    Tensor z = c.Empty(x.shape(), x.dtype() == DType::BF16 ? y.dtype() : x.dtype());
    kernels::Multiply(z.view(), x.view(), y.view(), c.stream());
    return z;
  };
  return Record(
      context, "multiply", product(context, a.value(), b.value()),
      {.inputs = {a, b}, .backward_input = [a, b, product](Context& c, const Tensor& gradient) {
         std::vector<Tensor> gradients(2);
         if (a.requires_gradient())
           gradients[0] = OfType(c, product(c, gradient, b.value()), a.dtype());
         if (b.requires_gradient())
           gradients[1] = OfType(c, product(c, gradient, a.value()), b.dtype());
         return gradients;
       }});
}

Variable Scale(Context& context, const Variable& x, double factor) {
  Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::Scale(y.view(), x.value().view(), factor, context.stream());
  return Record(context, "scale", y,
                {.inputs = {x}, .backward_input = [factor](Context& c, const Tensor& gradient) {
                   Tensor dx = c.Empty(gradient.shape(), gradient.dtype());
                   kernels::Scale(dx.view(), gradient.view(), factor, c.stream());
                   return std::vector<Tensor>{dx};
                 }});
}

Variable AddWhereEqual(Context& context, const Variable& x, const Tensor& row_id,
                       const Tensor& column_id, double value) {
  Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::AddWhereEqual(y.view(), x.value().view(), row_id.view(), column_id.view(), value,
                         context.stream());
  return Record(context, "add_where_equal", y,
                {.inputs = {x}, .backward_input = [](Context&, const Tensor& gradient) {
                   return std::vector<Tensor>{gradient};
                 }});
}

Variable Reshape(Context& context, const Variable& x, Shape shape) {
  return Record(
      context, "reshape", x.value().Reshape(shape),
      {.inputs = {x}, .backward_input = [shape = x.shape()](Context&, const Tensor& gradient) {
         return std::vector<Tensor>{gradient.Reshape(shape)};
       }});
}

Variable RecordActivation(Context& context, const Variable& x, const Tensor& y,
                          kernels::Activation activation) {
  return Record(
      context, "activation", y,
      {.inputs = {x},
       .backward_input = [saved = x.value(), activation](Context& c, const Tensor& gradient) {
         Tensor dx = c.Empty(saved.shape(), saved.dtype());
         kernels::ActivationBackward(dx.view(), gradient.view(), saved.view(), activation,
                                     c.stream());
         return std::vector<Tensor>{dx};
       }});
}

Variable Activate(Context& context, const Variable& x, kernels::Activation activation) {
  Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::ActivationForward(y.view(), x.value().view(), activation, context.stream());
  return RecordActivation(context, x, y, activation);
}

Variable SwiGlu(Context& context, const Variable& x) {
  TANDEM_CHECK_EQ(x.shape()[-1] % 2, 0);
  Shape shape = x.shape();
  shape[-1] /= 2;
  Tensor y = context.Empty(shape, x.dtype());
  kernels::SwiGluForward(y.view(), x.value().view(), context.stream());
  return Record(
      context, "swiglu", y,
      {.inputs = {x},
       .backward_input = [saved = x.value(), node = x.node()](Context& c, const Tensor& gradient) {
         const Tensor dx = node->GradientMemory(c, saved.shape(), saved.dtype());
         kernels::SwiGluBackward(dx.view(), OfType(c, gradient, saved.dtype()).view(), saved.view(),
                                 c.stream());
         return std::vector<Tensor>{dx};
       }});
}

Variable Softmax(Context& context, const Variable& x) {
  Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::SoftmaxForward(y.view(), x.value().view(), context.stream());
  return Record(context, "softmax", y,
                {.inputs = {x}, .backward_input = [y](Context& c, const Tensor& gradient) {
                   Tensor dx = c.Empty(y.shape(), y.dtype());
                   kernels::SoftmaxBackward(dx.view(), gradient.view(), y.view(), c.stream());
                   return std::vector<Tensor>{dx};
                 }});
}

Variable Dropout(Context& context, const Variable& x, const Tensor& row_index, float probability,
                 uint64_t operation) {
  if (!context.training() || probability == 0) return x;
  const Shape flat{x.shape().num_rows(), x.shape()[-1]};
  const Tensor y = context.Empty(x.shape(), x.dtype());
  const Tensor mask = context.Empty(Shape{flat[0], kernels::DropoutMaskWords(flat[1])}, DType::U64);
  kernels::Dropout({.x = x.value().Reshape(flat).view(),
                    .output = y.Reshape(flat).view(),
                    .row_index = row_index.view(),
                    .probability = probability,
                    .key = {context.seed(), operation},
                    .step = context.step(),
                    .mask = mask.view()},
                   context.stream());
  return Record(context, "dropout", y,
                {.inputs = {x},
                 .backward_input = [mask, probability, flat](Context& c, const Tensor& gradient) {
                   const Tensor dx = c.Empty(gradient.shape(), gradient.dtype());
                   kernels::DropoutBackward({.grad_output = gradient.Reshape(flat).view(),
                                             .grad_input = dx.Reshape(flat).view(),
                                             .mask = mask.view(),
                                             .probability = probability},
                                            c.stream());
                   return std::vector<Tensor>{dx};
                 }});
}

Variable RowDot(Context& context, const Variable& a, const Variable& b) {
  TANDEM_CHECK(a.shape() == b.shape()) << a.shape() << " vs " << b.shape();
  Tensor y = context.Empty(Shape{a.shape().num_rows()}, StatisticsType(a.dtype()));
  kernels::RowDot(y.view(), a.value().view(), b.value().view(), context.stream());
  return Record(context, "row_dot", y,
                {.inputs = {a, b}, .backward_input = [a, b](Context& c, const Tensor& gradient) {
                   std::vector<Tensor> gradients(2);
                   const Variable* factors[2] = {&a, &b};
                   for (int i = 0; i < 2; ++i) {
                     if (!factors[i]->requires_gradient()) continue;
                     gradients[i] = c.Empty(factors[i]->shape(), factors[i]->dtype());
                     kernels::ScaleRows(gradients[i].view(), factors[1 - i]->value().view(),
                                        gradient.view(), false, c.stream());
                   }
                   return gradients;
                 }});
}

}  // namespace tandem::ops
