#include "kernels/norm.h"

#include "absl/strings/str_cat.h"
#include "kernels/elementwise.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// In a BF16 run a norm reads the f32 residual stream and returns an operand of the next product.
DType OutputType(const Context& context, const Variable& x) {
  return context.compute() == DType::BF16 && x.dtype() == DType::F32 ? DType::BF16 : x.dtype();
}

ArrayView ViewOf(const Tensor& tensor) { return tensor.defined() ? tensor.view() : ArrayView(); }

// Memory for the gradient of an input or a parameter; undefined if it is absent or needs no
// gradient.
Tensor GradientOf(Context& context, const std::shared_ptr<Node>& node, Shape shape, DType dtype) {
  return node ? node->GradientMemory(context, shape, dtype) : Tensor();
}

// One computation serves both: RMS norm has no mean and no beta.
enum class Kind { LAYER, RMS };

// The state that forward and backward share.
struct Norm {
  Kind kind;
  Variable gamma;             // read again in backward
  Tensor sum, mean, inverse;  // mean: LAYER only
  kernels::ResidualDropout dropout;
  Tensor row_index, mask;  // viewed by `dropout`

  void Forward(Context& context, const Tensor& x, const Tensor& y, const Tensor& beta,
               const Tensor& output, double epsilon) const {
    const kernels::ResidualForward residual{.y = ViewOf(y), .sum = sum.view(), .dropout = dropout};
    if (kind == Kind::LAYER) {
      kernels::LayerNormForward({.x = x.view(),
                                 .gamma = ViewOf(gamma.value()),
                                 .beta = ViewOf(beta),
                                 .output = output.view(),
                                 .mean = mean.view(),
                                 .inverse = inverse.view(),
                                 .epsilon = epsilon,
                                 .residual = residual},
                                context.stream());
    } else {
      kernels::RmsNormForward({.x = x.view(),
                               .gamma = ViewOf(gamma.value()),
                               .output = output.view(),
                               .inverse = inverse.view(),
                               .epsilon = epsilon,
                               .residual = residual},
                              context.stream());
    }
  }

  void Backward(Context& context, const Tensor& grad_output, const Tensor& grad_sum,
                const Tensor& dx, const Tensor& dy, const Tensor& dgamma,
                const Tensor& dbeta) const {
    const kernels::ResidualBackward residual{
        .grad_sum = ViewOf(grad_sum), .grad_y = ViewOf(dy), .dropout = dropout};
    if (kind == Kind::LAYER) {
      kernels::LayerNormBackward({.grad_output = grad_output.view(),
                                  .x = sum.view(),
                                  .gamma = ViewOf(gamma.value()),
                                  .mean = mean.view(),
                                  .inverse = inverse.view(),
                                  .grad_input = dx.view(),
                                  .grad_gamma = ViewOf(dgamma),
                                  .grad_beta = ViewOf(dbeta),
                                  .residual = residual},
                                 context.stream());
    } else {
      kernels::RmsNormBackward({.grad_output = grad_output.view(),
                                .x = sum.view(),
                                .gamma = ViewOf(gamma.value()),
                                .inverse = inverse.view(),
                                .grad_input = dx.view(),
                                .grad_gamma = ViewOf(dgamma),
                                .residual = residual},
                               context.stream());
    }
  }
};

void SetDropout(Context& context, const Residual& rows, Norm& norm) {
  if (!rows.y.defined() || !context.training() || rows.dropout == 0) return;
  norm.row_index = rows.row_index;
  norm.dropout = {.probability = rows.dropout,
                  .row_index = rows.row_index.view(),
                  .key = {context.seed(), rows.operation},
                  .step = context.step()};
  if (context.stream().on_cuda()) return;  // backward draws the numbers again
  const Shape& shape = rows.y.shape();
  norm.mask =
      context.Empty(Shape{shape.num_rows(), kernels::DropoutMaskWords(shape[-1])}, DType::U64);
  norm.dropout.mask = norm.mask.view();
}

Normed Normalise(Context& context, Kind kind, const Residual& rows, const Variable& gamma,
                 const Variable& beta, double epsilon) {
  const Variable &x = rows.x, &y = rows.y;
  const Shape dim{x.shape()[-1]};
  TANDEM_CHECK(!gamma.defined() || gamma.shape() == dim) << gamma.shape();
  TANDEM_CHECK(!beta.defined() || beta.shape() == dim) << beta.shape();
  TANDEM_CHECK(!y.defined() || y.shape() == x.shape()) << y.shape() << " vs " << x.shape();
  const DType dtype = x.dtype(), statistics = StatisticsType(dtype);
  const Tensor output = context.Empty(x.shape(), OutputType(context, x));
  const Shape per_row{x.shape().num_rows()};
  Norm norm{.kind = kind,
            .gamma = gamma,
            .sum = y.defined() ? context.Empty(x.shape(), dtype) : x.value(),
            .mean = kind == Kind::LAYER ? context.Empty(per_row, statistics) : Tensor(),
            .inverse = context.Empty(per_row, statistics),
            .dropout = {},
            .row_index = {},
            .mask = {}};
  SetDropout(context, rows, norm);
  norm.Forward(context, x.value(), y.value(), beta.value(), output, epsilon);

  // If nothing is dropped or rounded, the gradient of y is the gradient of the sum.
  const bool y_apart =
      y.requires_gradient() && (norm.dropout.probability > 0 || y.dtype() != dtype);
  const bool shared = y.requires_gradient() && !y_apart;
  auto backward = [norm, statistics, dim, y_apart, shared, dtype, output_type = output.dtype(),
                   x_node = x.node(), y_node = y.node(), gamma_node = gamma.node(),
                   beta_node = beta.node()](Context& c, const Tensor& grad_sum,
                                            const Tensor& given) {
    const Shape shape = norm.sum.shape();
    Tensor grad = given;
    if (!grad.defined()) {
      grad = c.Empty(shape, output_type);
      kernels::Fill(grad.view(), 0, c.stream());
    }
    // The kernels take `grad` in f32 or bf16 for an f32 x, else in the type of x. If y has a
    // gradient of its own, they take `grad` in the type of that gradient.
    if (dtype == DType::BF16 || y_apart) grad = OfType(c, grad, output_type);
    // A gradient delivered to two nodes must not lie in the storage of one of them.
    const Tensor dx =
        x_node && !shared ? x_node->GradientMemory(c, shape, dtype) : c.Empty(shape, dtype);
    const Tensor dy = y_apart ? y_node->GradientMemory(c, shape, output_type) : Tensor();
    const Tensor dgamma = GradientOf(c, gamma_node, dim, statistics),
                 dbeta = GradientOf(c, beta_node, dim, statistics);
    norm.Backward(c, grad, grad_sum, dx, dy, dgamma, dbeta);
    return std::vector<Tensor>{dx, shared ? dx : dy, dgamma, dbeta};
  };
  const char* const before = !y.defined()                   ? ""
                             : norm.dropout.probability > 0 ? "dropout_add_"
                                                            : "add_";
  auto [sum, normed] =
      RecordPair(context, absl::StrCat(before, kind == Kind::LAYER ? "layer_norm" : "rms_norm"),
                 norm.sum, output, {x, y, gamma, beta}, std::move(backward));
  return {std::move(sum), std::move(normed)};
}

}  // namespace

Normed LayerNorm(Context& context, const Residual& rows, const Variable& gamma,
                 const Variable& beta, double epsilon) {
  return Normalise(context, Kind::LAYER, rows, gamma, beta, epsilon);
}

Normed RmsNorm(Context& context, const Residual& rows, const Variable& gamma, double epsilon) {
  return Normalise(context, Kind::RMS, rows, gamma, Variable(), epsilon);
}

}  // namespace tandem::ops
