#include "kernels/loss.h"

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/loss_sum.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable RecordLossSum(Context& context, const char* name, std::vector<Variable> inputs,
                       const std::vector<Tensor>& losses, std::vector<Tensor> gradients) {
  Tensor sum;
  for (const Tensor& loss : losses) {
    const Tensor part = context.Empty(Shape{}, loss.dtype());
    kernels::Sum(part.view(), loss.view(), context.stream());
    if (sum.defined()) kernels::Add(part.view(), sum.view(), part.view(), context.stream());
    sum = part;
  }
  const auto backward = [gradients = std::move(gradients)](Context& c, const Tensor& gradient) {
    const double factor = gradient.ToHost(c.stream()).At(0);
    for (const Tensor& grad : gradients) {
      if (factor != 1.0 && grad.defined())
        kernels::Scale(grad.view(), grad.view(), factor, c.stream());
    }
    return gradients;
  };
  return Record(
      context, name, sum,
      {.inputs = std::move(inputs), .backward_input = backward, .reads_gradient_on_host = true});
}

std::vector<Tensor> GradientsOfHead(Context& context, const std::vector<Variable>& inputs) {
  // The kernel sums the gradients of weight and bias in f32 at least.
  std::vector<Tensor> gradients(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!context.training() || !inputs[i].requires_gradient()) continue;
    const DType dtype = i == 0 ? inputs[i].dtype() : StatisticsType(inputs[i].dtype());
    gradients[i] = inputs[i].node()->GradientMemory(context, inputs[i].shape(), dtype);
  }
  return gradients;
}

Variable RecordHeadLoss(Context& context, const char* name, const std::vector<Variable>& inputs,
                        const Tensor& loss, std::vector<Tensor> gradients) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].defined()) gradients[i] = OfType(context, gradients[i], inputs[i].dtype());
  }
  return RecordLossSum(context, name, inputs, {loss}, std::move(gradients));
}

namespace {

ArrayView ViewOf(const Tensor& tensor) { return tensor.defined() ? tensor.view() : ArrayView(); }

// Returns the rows' losses, and computes the defined gradients of hidden, weight and bias.
Tensor LinearLosses(Context& context, const Variable& hidden, const Variable& weight,
                    bool weight_is_table, const Variable& bias, const Tensor& target,
                    const std::vector<Tensor>& gradients) {
  const Tensor rows = Operand(context, hidden);
  const Tensor loss =
      context.Empty(target.shape(), rows.dtype() == DType::BF16 ? DType::F32 : rows.dtype());
  kernels::LinearCrossEntropy({.hidden = rows.view(),
                               .weight = Operand(context, weight).view(),
                               .weight_is_table = weight_is_table,
                               .bias = ViewOf(bias.value()),
                               .target = target.view(),
                               .loss = loss.view(),
                               .grad_hidden = ViewOf(gradients[0]),
                               .grad_weight = ViewOf(gradients[1]),
                               .grad_bias = ViewOf(gradients[2])},
                              context.stream());
  return loss;
}

struct BinaryLosses {
  Tensor loss, gradient;  // [R]; the gradient has the logits' type
};
// REQUIRES: the label has the type of the logits' statistics.
BinaryLosses BinaryLossesOf(Context& context, const Variable& logits, const Tensor& label) {
  const Tensor exact = OfType(context, logits.value(), StatisticsType(logits.dtype()));
  const Tensor loss = context.Empty(exact.shape(), exact.dtype()),
               gradient = context.Empty(exact.shape(), exact.dtype());
  kernels::BinaryCrossEntropy(
      {.logits = exact.view(), .label = label.view(), .loss = loss.view(), .grad = gradient.view()},
      context.stream());
  return {loss, OfType(context, gradient, logits.dtype())};
}

}  // namespace

Variable CrossEntropySum(Context& context, const Variable& logits, const Tensor& target) {
  Tensor loss = context.Empty(Shape{logits.shape()[0]}, StatisticsType(logits.dtype()));
  Tensor grad = context.Empty(logits.shape(), logits.dtype());
  kernels::CrossEntropy({.logits = logits.value().view(),
                         .target = target.view(),
                         .loss = loss.view(),
                         .grad = grad.view()},
                        context.stream());
  return RecordLossSum(context, "cross_entropy", {logits}, {loss}, {grad});
}

Variable LinearCrossEntropySum(Context& context, const Variable& hidden, const Variable& weight,
                               bool weight_is_table, const Variable& bias, const Tensor& target) {
  const std::vector<Variable> inputs = {hidden, weight, bias};
  const std::vector<Tensor> gradients = GradientsOfHead(context, inputs);
  const Tensor loss =
      LinearLosses(context, hidden, weight, weight_is_table, bias, target, gradients);
  return RecordHeadLoss(context, "linear_cross_entropy", inputs, loss, gradients);
}

Tensor LinearCrossEntropyLosses(Context& context, const Variable& hidden, const Variable& weight,
                                bool weight_is_table, const Variable& bias, const Tensor& target) {
  return LinearLosses(context, hidden, weight, weight_is_table, bias, target,
                      std::vector<Tensor>(3));
}

Variable BinaryCrossEntropySum(Context& context, const Variable& logits, const Tensor& label) {
  const BinaryLosses binary = BinaryLossesOf(context, logits, label);
  return RecordLossSum(context, "binary_cross_entropy", {logits}, {binary.loss}, {binary.gradient});
}

Variable BinaryCrossEntropySum(Context& context, const Variable& positive,
                               const Variable& negative) {
  std::vector<Tensor> losses, gradients;
  for (const Variable* logits : {&positive, &negative}) {
    const Tensor label = context.Empty(logits->shape(), StatisticsType(logits->dtype()));
    kernels::Fill(label.view(), logits == &positive ? 1 : 0, context.stream());
    const BinaryLosses binary = BinaryLossesOf(context, *logits, label);
    losses.push_back(binary.loss);
    gradients.push_back(binary.gradient);
  }
  return RecordLossSum(context, "binary_cross_entropy", {positive, negative}, losses,
                       std::move(gradients));
}

}  // namespace tandem::ops
