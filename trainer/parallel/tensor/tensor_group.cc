#include "trainer/parallel/tensor/tensor_group.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/random.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/loss_sum.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::parallel {

namespace {

ArrayView ViewOf(const Tensor& tensor) { return tensor.defined() ? tensor.view() : ArrayView(); }

// The work of a failed step must end before its memory goes.
void End(comm::ProcessGroup& group, const std::optional<comm::Work>& work) {
  if (work.has_value() && !work->done()) group.Await(*work, absl::InfinitePast()).IgnoreError();
}

// All ranks' rows, gathered again in backward from those that this rank has kept.
class GatheredRows final : public Recoverable {
 public:
  GatheredRows(comm::ProcessGroup* group, Tensor own, int64_t num_rows)
      : group_(*group), own_(std::move(own)), num_rows_(num_rows) {}
  ~GatheredRows() override { End(group_, work_); }

  void Start(Context& context) override {
    if (work_.has_value() || context.failed()) return;
    Shape shape = own_.shape();
    shape[0] *= group_.size();
    all_ = context.Empty(shape, own_.dtype());
    work_ = group_.AllGather(all_.view(), own_.view(),
                             {.stream = &context.stream(), .tag = StableHash("enter again")});
  }
  Tensor Value(Context& context) override {
    Start(context);
    if (work_.has_value()) context.Fail(group_.Await(*work_, context.deadline()));
    return all_.defined() ? all_.Rows(0, num_rows_) : OfFailedStep(context);
  }

 private:
  // After a failure operations still return tensors of the right shape.
  Tensor OfFailedStep(Context& context) const {
    Shape shape = own_.shape();
    shape[0] = num_rows_;
    return context.Empty(shape, own_.dtype());
  }

  comm::ProcessGroup& group_;
  const Tensor own_;
  const int64_t num_rows_;
  std::optional<comm::Work> work_;
  Tensor all_;
};

// The tensor, or a copy if others hold it too.
Tensor OwnCopy(Context& context, const Tensor& x) {
  if (x.unique()) return x;
  const Tensor copy = context.Empty(x.shape(), x.dtype());
  kernels::Copy(copy.view(), x.view(), context.stream());
  return copy;
}

}  // namespace

void TensorGroup::Reduce(Context& context, const Tensor& x, comm::ReduceOp op,
                         const char* what) const {
  if (context.failed()) return;
  const comm::CollectiveArgs args{.stream = &context.stream(), .op = op, .tag = StableHash(what)};
  context.Fail(group_.Await(group_.AllReduce(x.view(), args), context.deadline()));
}

void TensorGroup::Await(Context& context, const comm::Work& work) const {
  context.Fail(group_.Await(work, context.deadline()));
}

void TensorGroup::ClearPadding(const Tensor& rows, Stream& stream) const {
  kernels::Fill(rows.view(), 0, stream);
}

Tensor TensorGroup::Padded(Context& context, const Tensor& rows) const {
  const int64_t count = rows.dim(0), padded = RowsPerRank(count) * size();
  if (padded == count) return rows;
  Shape shape = rows.shape();
  shape[0] = padded;
  const Tensor all = context.Empty(shape, rows.dtype());
  kernels::Copy(all.Rows(0, count).view(), rows.view(), context.stream());
  ClearPadding(all.Rows(count, padded), context.stream());
  return all;
}

Tensor TensorGroup::OwnRows(Context& context, const Tensor& rows) const {
  const int64_t part = RowsPerRank(rows.dim(0));
  return Padded(context, rows).Rows(rank() * part, (rank() + 1) * part);
}

TensorGroup::Sum TensorGroup::StartSum(Context& context, const Tensor& rows, bool cut) const {
  Sum sum;
  sum.from = sum.result = cut ? Padded(context, rows) : rows;
  if (cut) {
    Shape shape = sum.from.shape();
    shape[0] /= size();
    sum.result = context.Empty(shape, rows.dtype());
  }
  if (context.failed()) return sum;
  const comm::CollectiveArgs args{.stream = &context.stream(), .tag = StableHash("sum of rows")};
  sum.work = cut ? group_.ReduceScatter(sum.result.view(), sum.from.view(), args)
                 : group_.AllReduce(sum.result.view(), args);
  return sum;
}

// A sum that one node of the graph starts and the next one awaits.
class TensorGroup::SumInFlight {
 public:
  explicit SumInFlight(comm::ProcessGroup* group) : group_(*group) {}
  ~SumInFlight() { End(group_, sum_.work); }

  const Tensor& Begin(Sum sum) {
    sum_ = std::move(sum);
    return sum_.result;
  }
  Tensor Finish(Context& context) {
    if (sum_.work.has_value()) context.Fail(group_.Await(*sum_.work, context.deadline()));
    sum_.from = Tensor();
    return std::move(sum_.result);
  }

 private:
  comm::ProcessGroup& group_;
  Sum sum_;
};

Tensor TensorGroup::Gather(Context& context, const Tensor& own, int64_t num_rows,
                           const char* what) const {
  Shape shape = own.shape();
  shape[0] *= size();
  const Tensor all = context.Empty(shape, own.dtype());
  if (!context.failed()) {
    Await(context, group_.AllGather(all.view(), own.view(),
                                    {.stream = &context.stream(), .tag = StableHash(what)}));
  }
  return all.Rows(0, num_rows);
}

Variable TensorGroup::RecordEntry(Context& context, const Variable& x, const Tensor& entered,
                                  bool cut, std::shared_ptr<Recoverable> recoverable) const {
  // Two nodes, so that the weights' gradients are computed while the rows' travel.
  const auto sum = std::make_shared<SumInFlight>(&group_);
  const auto finish = [sum](Context& c, const Tensor&) {
    return std::vector<Tensor>{sum->Finish(c)};
  };
  const Variable awaited =
      Record(context, "enter_cut.await", x.value(), {.inputs = {x}, .backward_input = finish});
  const auto start = [this, sum, cut](Context& c, const Tensor& gradient) {
    return std::vector<Tensor>{sum->Begin(StartSum(c, cut ? gradient : OwnCopy(c, gradient), cut))};
  };
  return Record(context, "enter_cut", entered,
                {.inputs = {awaited},
                 .backward_input = start,
                 .starts_work = true,
                 .recoverable = std::move(recoverable)});
}

Variable TensorGroup::EnterEqual(Context& context, const Variable& x) const {
  return RecordEntry(context, x, x.value(), /*cut=*/false, nullptr);
}

Variable TensorGroup::Enter(Context& context, const Variable& x, int64_t num_rows) const {
  if (!cut_rows_) return EnterEqual(context, x);
  return RecordEntry(context, x, Gather(context, x.value(), num_rows, "enter"), /*cut=*/true,
                     std::make_shared<GatheredRows>(&group_, x.value(), num_rows));
}

Variable TensorGroup::Leave(Context& context, const Variable& partial) const {
  const int64_t num_rows = partial.shape()[0];
  const Sum sum = StartSum(context, partial.value(), cut_rows_);
  if (sum.work.has_value()) Await(context, *sum.work);
  const auto backward = [this, num_rows](Context& c, const Tensor& gradient) {
    return std::vector<Tensor>{cut_rows_ ? Gather(c, gradient, num_rows, "leave") : gradient};
  };
  return Record(context, "leave_cut", sum.result,
                {.inputs = {partial}, .backward_input = backward});
}

Variable TensorGroup::Split(Context& context, const Variable& x) const {
  if (!cut_rows_) return x;
  const int64_t num_rows = x.shape()[0];
  const auto backward = [this, num_rows](Context& c, const Tensor& gradient) {
    return std::vector<Tensor>{Gather(c, gradient, num_rows, "split")};
  };
  return Record(context, "split_rows", OwnRows(context, x.value()),
                {.inputs = {x}, .backward_input = backward});
}

Variable TensorGroup::Join(Context& context, const Variable& x, int64_t num_rows) const {
  if (!cut_rows_) return x;
  const auto backward = [this](Context& c, const Tensor& gradient) {
    return std::vector<Tensor>{OwnRows(c, gradient)};
  };
  return Record(context, "join_rows", Gather(context, x.value(), num_rows, "join"),
                {.inputs = {x}, .backward_input = backward});
}

Tensor TensorGroup::NumbersHere(Context& context, const Tensor& numbers) const {
  return cut_rows_ ? OwnRows(context, numbers) : numbers;
}

Variable TensorGroup::GatherRows(Context& context, const Variable& part, int64_t first,
                                 const Tensor& index) const {
  // Rows of other ranks are row 0 here, times 0.
  const Tensor here = context.Empty(index.shape(), DType::I64),
               factor = context.Empty(index.shape(), part.dtype());
  kernels::LocateRows(here.view(), factor.view(), index.view(), first, part.shape()[0],
                      context.stream());
  return Leave(context, ops::ScaleRows(context, ops::GatherRows(context, part, here), factor));
}

CutHead TensorGroup::HeadOfRows(Context& context, const Variable& rows) const {
  const int64_t count = rows.shape()[0], width = rows.shape()[1];
  const IndexRange own = PartOf(count);
  const auto backward = [this, count, width](Context& c, const Tensor& gradient) {
    // Parts differ by one row at most; the shorter ones travel with a row that is not read.
    const int64_t part = RowsPerRank(count), here = gradient.dim(0);
    const Tensor sent = c.Empty(Shape{part, width}, gradient.dtype()),
                 whole = c.Empty(Shape{count, width}, gradient.dtype());
    kernels::Copy(sent.Rows(0, here).view(), gradient.view(), c.stream());
    kernels::Fill(sent.Rows(here, part).view(), 0, c.stream());
    const Tensor all = Gather(c, sent, part * size(), "head of rows");
    for (int r = 0; r < size(); ++r) {
      const IndexRange to = PartOf(count, r);
      kernels::Copy(whole.Rows(to.begin, to.end).view(),
                    all.Rows(r * part, r * part + to.size()).view(), c.stream());
    }
    return std::vector<Tensor>{whole};
  };
  const Variable part = Record(context, "head_of_rows", rows.value().Rows(own.begin, own.end),
                               {.inputs = {rows}, .backward_input = backward});
  return {part, /*is_table=*/true, Variable(), own.begin};
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
  const Tensor exponentials = sums.Rows(0, 1), target_logit = sums.Rows(1, 2);
  kernels::RelativeExponentials(exponentials.view(), log_sum.view(), largest.view(),
                                context.stream());
  Reduce(context, sums, comm::ReduceOp::SUM, "sums");
  kernels::JoinedLosses({.largest = largest.view(),
                         .exponentials = exponentials.view(),
                         .target_logit = target_logit.view(),
                         .log_sum = log_sum.view(),
                         .loss = loss.view()},
                        context.stream());
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
