#include "trainer/sparse/step_pushes.h"

#include "kernels/base/check.h"

namespace tandem::sparse {

StepPushes::~StepPushes() {
  // A client reads the buffers until its futures complete. After a failure they complete when the
  // client is aborted.
  for (Pushed& pushed : pushes_) pushed.done.Wait(absl::InfiniteFuture()).IgnoreError();
}

void StepPushes::Begin(uint64_t step) {
  TANDEM_CHECK(pushes_.empty() && last_.empty());
  step_ = step;
}

void StepPushes::Push(std::vector<RowGradients> rows) {
  std::vector<ps::PushSegment> segments;
  for (const RowGradients& part : rows)
    segments.push_back({part.table, *part.ids, part.gradients.data<float>()});
  auto pushed = rows_->Push(step_, slice_, std::move(segments));
  pushes_.push_back({.rows = std::move(rows), .bags = nullptr, .of_bags = {}, .done = pushed});
}

void StepPushes::PushPooled(const ps::Bags& bags, std::shared_ptr<const void> owner,
                            Tensor gradients) {
  auto pushed = pooled_->PushPooled(step_, slice_, bags, static_cast<size_t>(gradients.dim(1)),
                                    gradients.data<float>());
  pushes_.push_back({.rows = {},
                     .bags = std::move(owner),
                     .of_bags = std::move(gradients),
                     .done = std::move(pushed)});
}

void StepPushes::AwaitPushes(Context& context) {
  // The functions live until the pushes are done: they own what was pushed.
  for (size_t i = 0; i < last_.size() && !context.failed(); ++i) last_[i](context);
  for (Pushed& pushed : pushes_) {
    context.Fail(pushed.done.Wait(context.deadline()).status());
    if (context.failed()) return;
  }
  pushes_.clear();
  last_.clear();
}

}  // namespace tandem::sparse
