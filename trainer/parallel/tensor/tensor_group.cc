#include "trainer/parallel/tensor/tensor_group.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/base/random.h"
#include "kernels/elementwise.h"
#include "kernels/loss.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/loss_sum.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::parallel {

namespace {

ArrayView ViewOf(const Tensor& tensor) { return tensor.defined() ? tensor.view() : ArrayView(); }

// Row 0 of `sums` [2, R]: the ranks' sums of exponentials relative to the largest `log_sum`.
template <class T>
void PutExponentials(const Tensor& log_sum, const Tensor& largest, const Tensor& sums) {
  for (int64_t r = 0; r < log_sum.num_elements(); ++r)
    sums.data<T>()[r] = std::exp(log_sum.data<T>()[r] - largest.data<T>()[r]);
}

// Turns the sums over ranks into the logarithm over all classes and the loss.
template <class T>
void PutLosses(const Tensor& largest, const Tensor& sums, const Tensor& log_sum,
               const Tensor& loss) {
  const int64_t rows = loss.num_elements();
  for (int64_t r = 0; r < rows; ++r) {
    log_sum.data<T>()[r] = largest.data<T>()[r] + std::log(sums.data<T>()[r]);
    loss.data<T>()[r] = log_sum.data<T>()[r] - sums.data<T>()[rows + r];
  }
}

}  // namespace

void TensorGroup::Reduce(Context& context, const Tensor& x, comm::ReduceOp op,
                         const char* what) const {
  if (context.failed()) return;
  const comm::CollectiveArgs args{.stream = &context.stream(), .op = op, .tag = StableHash(what)};
  context.Fail(group_.Await(group_.AllReduce(x.view(), args), context.deadline()));
}

Variable TensorGroup::Enter(Context& context, const Variable& x) const {
  const auto backward = [this](Context& c, const Tensor& gradient) {
    Tensor sum = gradient;
    if (!gradient.unique()) {
      sum = c.Empty(gradient.shape(), gradient.dtype());
      kernels::Copy(sum.view(), gradient.view(), c.stream());
    }
    Reduce(c, sum, comm::ReduceOp::SUM, "enter");
    return std::vector<Tensor>{sum};
  };
  return Record(context, "enter_cut", x.value(), {.inputs = {x}, .backward_input = backward});
}

Variable TensorGroup::Leave(Context& context, const Variable& partial) const {
  Reduce(context, partial.value(), comm::ReduceOp::SUM, "leave");
  const auto backward = [](Context&, const Tensor& gradient) {
    return std::vector<Tensor>{gradient};
  };
  return Record(context, "leave_cut", partial.value(),
                {.inputs = {partial}, .backward_input = backward});
}

Variable TensorGroup::GatherRows(Context& context, const Variable& part, int64_t first,
                                 const Tensor& index) const {
  const int64_t rows = part.shape()[0];
  // Rows of other ranks are row 0 here, times 0.
  const Tensor here = Tensor::Empty(index.shape(), DType::I64),
               factor = Tensor::Empty(index.shape(), part.dtype());
  for (int64_t i = 0; i < index.num_elements(); ++i) {
    const int64_t row = index.data<int64_t>()[i] - first;
    const bool own = row >= 0 && row < rows;
    here.data<int64_t>()[i] = own ? row : 0;
    factor.Set(i, own ? 1 : 0);
  }
  return Leave(context, ops::ScaleRows(context, ops::GatherRows(context, part, here), factor));
}

TensorGroup::Losses TensorGroup::LossesOf(Context& context, const Variable& hidden,
                                          const CutHead& head, const Tensor& targets) const {
  const Tensor rows = ops::Operand(context, hidden);
  const DType dtype = ops::StatisticsType(rows.dtype());
  const int64_t count = targets.num_elements();
  const Tensor log_sum = context.Empty(Shape{count}, dtype),
               sums = context.Empty(Shape{2, count}, dtype),
               loss = context.Empty(Shape{count}, dtype);
  kernels::LinearLogSums({{.hidden = rows.view(),
                           .weight = ops::Operand(context, head.weight).view(),
                           .weight_is_table = head.is_table,
                           .bias = ViewOf(head.bias.value()),
                           .target = targets.view(),
                           .first_class = head.first_class},
                          log_sum.view(),
                          sums.Rows(1, 2).Reshape(Shape{count}).view()},
                         context.stream());
  const Tensor largest = context.Empty(Shape{count}, dtype);
  kernels::Copy(largest.view(), log_sum.view(), context.stream());
  Reduce(context, largest, comm::ReduceOp::MAX, "largest");
  const bool exact = dtype == DType::F64;
  if (exact)
    PutExponentials<double>(log_sum, largest, sums);
  else
    PutExponentials<float>(log_sum, largest, sums);
  Reduce(context, sums, comm::ReduceOp::SUM, "sums");
  if (exact)
    PutLosses<double>(largest, sums, log_sum, loss);
  else
    PutLosses<float>(largest, sums, log_sum, loss);
  return {log_sum, loss};
}

Tensor TensorGroup::CrossEntropies(Context& context, const Variable& hidden, const CutHead& head,
                                   const Tensor& targets) const {
  return LossesOf(context, hidden, head, targets).loss;
}

Variable TensorGroup::CrossEntropySum(Context& context, const Variable& hidden, const CutHead& head,
                                      const Tensor& targets) const {
  const Losses losses = LossesOf(context, hidden, head, targets);
  const std::vector<Variable> inputs = {hidden, head.weight, head.bias};
  const std::vector<Tensor> gradients = ops::GradientsOfHead(context, inputs);
  if (context.training()) {
    kernels::LinearCrossEntropyGradients({{.hidden = ops::Operand(context, hidden).view(),
                                           .weight = ops::Operand(context, head.weight).view(),
                                           .weight_is_table = head.is_table,
                                           .bias = ViewOf(head.bias.value()),
                                           .target = targets.view(),
                                           .first_class = head.first_class},
                                          losses.log_sum.view(),
                                          ViewOf(gradients[0]),
                                          ViewOf(gradients[1]),
                                          ViewOf(gradients[2])},
                                         context.stream());
  }
  return ops::RecordHeadLoss(context, "cut_cross_entropy", inputs, losses.loss, gradients);
}

}  // namespace tandem::parallel
