#include "kernels/loss.h"

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// The gradient was formed in the forward pass, for a gradient of 1 of the sum; any other factor scales it.
Variable RecordSum(Context& context, const char* name, const Variable& logits, const Tensor& loss, Tensor grad) {
  Tensor sum = Tensor::Empty(Shape{}, logits.dtype());
  sum.Set(0, kernels::Sum(loss.view(), context.stream()));
  return Record(context, name, sum, {.inputs = {logits}, .backward_input = [grad](Context& c, const Tensor& gradient) {
                  const double factor = gradient.At(0);
                  if (factor != 1.0) kernels::Scale(grad.view(), grad.view(), factor, c.stream());
                  return std::vector<Tensor>{grad};
                }});
}

}  // namespace

Variable CrossEntropySum(Context& context, const Variable& logits, const Tensor& target) {
  Tensor loss = Tensor::Empty(Shape{logits.shape()[0]}, logits.dtype());
  Tensor grad = Tensor::Empty(logits.shape(), logits.dtype());
  kernels::CrossEntropy({.logits = logits.value().view(), .target = target.view(), .loss = loss.view(),
                         .grad = grad.view()},
                        context.stream());
  return RecordSum(context, "cross_entropy", logits, loss, grad);
}

Variable BinaryCrossEntropySum(Context& context, const Variable& logits, double label) {
  Tensor labels = Tensor::Empty(logits.shape(), logits.dtype());
  kernels::Fill(labels.view(), label, context.stream());
  Tensor loss = Tensor::Empty(logits.shape(), logits.dtype());
  Tensor grad = Tensor::Empty(logits.shape(), logits.dtype());
  kernels::BinaryCrossEntropy({.logits = logits.value().view(), .label = labels.view(), .loss = loss.view(),
                               .grad = grad.view()},
                              context.stream());
  return RecordSum(context, "binary_cross_entropy", logits, loss, grad);
}

}  // namespace tandem::ops
