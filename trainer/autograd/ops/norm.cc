#include "kernels/norm.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable LayerNorm(Context& context, const Variable& x, const Variable& gamma, const Variable& beta, double epsilon) {
  const Shape dim{x.shape()[-1]}, rows{x.shape().num_rows()};
  TANDEM_CHECK(gamma.shape() == dim && (!beta.defined() || beta.shape() == dim));
  Tensor y = Tensor::Empty(x.shape(), x.dtype());
  Tensor mean = Tensor::Empty(rows, x.dtype()), inverse = Tensor::Empty(rows, x.dtype());
  kernels::LayerNormForward({.x = x.value().view(), .gamma = gamma.value().view(),
                             .beta = beta.defined() ? beta.value().view() : ArrayView(),
                             .output = y.view(), .mean = mean.view(), .inverse = inverse.view(), .epsilon = epsilon},
                            context.stream());
  std::vector<Variable> inputs{x, gamma};
  if (beta.defined()) inputs.push_back(beta);
  return Record(context, "layer_norm", Operand(context, y),
                {.inputs = std::move(inputs),
                 .backward_input = [saved = x.value(), g = gamma.value(), mean, inverse, dim, has_beta = beta.defined()](
                                       Context& c, const Tensor& gradient) {
                   Tensor dx = Tensor::Empty(saved.shape(), saved.dtype());
                   std::vector<Tensor> gradients{dx, Tensor::Empty(dim, saved.dtype())};
                   if (has_beta) gradients.push_back(Tensor::Empty(dim, saved.dtype()));
                   kernels::LayerNormBackward({.grad_output = OfType(c, gradient, saved.dtype()).view(), .x = saved.view(),
                                               .gamma = g.view(), .mean = mean.view(), .inverse = inverse.view(),
                                               .grad_input = dx.view(), .grad_gamma = gradients[1].view(),
                                               .grad_beta = has_beta ? gradients[2].view() : ArrayView()},
                                              c.stream());
                   return gradients;
                 }});
}

Variable RmsNorm(Context& context, const Variable& x, const Variable& gamma, double epsilon) {
  const Shape dim{x.shape()[-1]};
  TANDEM_CHECK(gamma.shape() == dim) << gamma.shape();
  Tensor y = Tensor::Empty(x.shape(), x.dtype());
  Tensor inverse = Tensor::Empty(Shape{x.shape().num_rows()}, x.dtype());
  kernels::RmsNormForward({.x = x.value().view(), .gamma = gamma.value().view(), .output = y.view(),
                           .inverse = inverse.view(), .epsilon = epsilon},
                          context.stream());
  return Record(context, "rms_norm", y,
                {.inputs = {x, gamma},
                 .backward_input = [saved = x.value(), g = gamma.value(), inverse, dim](Context& c,
                                                                                      const Tensor& gradient) {
                   Tensor dx = Tensor::Empty(saved.shape(), saved.dtype());
                   Tensor dgamma = Tensor::Empty(dim, saved.dtype());
                   kernels::RmsNormBackward({.grad_output = gradient.view(), .x = saved.view(), .gamma = g.view(),
                                             .inverse = inverse.view(), .grad_input = dx.view(),
                                             .grad_gamma = dgamma.view()},
                                            c.stream());
                   return std::vector<Tensor>{dx, dgamma};
                 }});
}

}  // namespace tandem::ops
