#include "kernels/norm.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// In a BF16 run a norm reads the f32 residual stream and gives an operand of the next product.
DType OutputType(const Context& context, const Variable& x) {
  return context.compute() == DType::BF16 && x.dtype() == DType::F32 ? DType::BF16 : x.dtype();
}

ArrayView ViewOf(const Tensor& tensor) { return tensor.defined() ? tensor.view() : ArrayView(); }

// The kernels take an output's gradient in f32 or bf16 for an f32 x, and in the type of x for another.
Tensor GradientFor(Context& context, const Tensor& gradient, DType x) {
  return x == DType::BF16 ? OfType(context, gradient, x) : gradient;
}

// Memory for the gradient of an input or a parameter; undefined if it is absent or needs none.
Tensor GradientOf(Context& context, const std::shared_ptr<Node>& node, Shape shape, DType dtype) {
  return node ? node->GradientMemory(context, shape, dtype) : Tensor();
}

}  // namespace

Variable LayerNorm(Context& context, const Variable& x, const Variable& gamma, const Variable& beta, double epsilon) {
  const Shape dim{x.shape()[-1]}, rows{x.shape().num_rows()};
  TANDEM_CHECK(!gamma.defined() || gamma.shape() == dim) << gamma.shape();
  TANDEM_CHECK(!beta.defined() || beta.shape() == dim) << beta.shape();
  const Tensor y = context.Empty(x.shape(), OutputType(context, x));
  const DType statistics = StatisticsType(x.dtype());
  const Tensor mean = context.Empty(rows, statistics), inverse = context.Empty(rows, statistics);
  kernels::LayerNormForward({.x = x.value().view(), .gamma = ViewOf(gamma.value()), .beta = ViewOf(beta.value()),
                             .output = y.view(), .mean = mean.view(), .inverse = inverse.view(), .epsilon = epsilon},
                            context.stream());
  auto backward = [saved = x.value(), g = gamma.value(), mean, inverse, statistics, dim, x_node = x.node(), gamma_node = gamma.node(),
                   beta_node = beta.node()](Context& c, const Tensor& gradient) {
    const DType dtype = saved.dtype();
    const Tensor dx = x_node ? x_node->GradientMemory(c, saved.shape(), dtype) : c.Empty(saved.shape(), dtype);
    const Tensor dgamma = GradientOf(c, gamma_node, dim, statistics), dbeta = GradientOf(c, beta_node, dim, statistics);
    const Tensor grad = GradientFor(c, gradient, dtype);
    kernels::LayerNormBackward({.grad_output = grad.view(), .x = saved.view(), .gamma = ViewOf(g), .mean = mean.view(),
                                .inverse = inverse.view(), .grad_input = dx.view(), .grad_gamma = ViewOf(dgamma),
                                .grad_beta = ViewOf(dbeta)},
                               c.stream());
    return std::vector<Tensor>{dx, dgamma, dbeta};
  };
  return Record(context, "layer_norm", y, {.inputs = {x, gamma, beta}, .backward_input = backward});
}

Variable RmsNorm(Context& context, const Variable& x, const Variable& gamma, double epsilon) {
  const Shape dim{x.shape()[-1]};
  TANDEM_CHECK(!gamma.defined() || gamma.shape() == dim) << gamma.shape();
  const Tensor y = context.Empty(x.shape(), OutputType(context, x));
  const DType statistics = StatisticsType(x.dtype());
  const Tensor inverse = context.Empty(Shape{x.shape().num_rows()}, statistics);
  kernels::RmsNormForward({.x = x.value().view(), .gamma = ViewOf(gamma.value()), .output = y.view(),
                           .inverse = inverse.view(), .epsilon = epsilon},
                          context.stream());
  auto backward = [saved = x.value(), g = gamma.value(), inverse, statistics, dim, x_node = x.node(), gamma_node = gamma.node()](
                      Context& c, const Tensor& gradient) {
    const DType dtype = saved.dtype();
    const Tensor dx = x_node ? x_node->GradientMemory(c, saved.shape(), dtype) : c.Empty(saved.shape(), dtype);
    const Tensor dgamma = GradientOf(c, gamma_node, dim, statistics);
    const Tensor grad = GradientFor(c, gradient, dtype);
    kernels::RmsNormBackward({.grad_output = grad.view(), .x = saved.view(), .gamma = ViewOf(g), .inverse = inverse.view(),
                              .grad_input = dx.view(), .grad_gamma = ViewOf(dgamma)},
                             c.stream());
    return std::vector<Tensor>{dx, dgamma};
  };
  return Record(context, "rms_norm", y, {.inputs = {x, gamma}, .backward_input = backward});
}

}  // namespace tandem::ops
