#include "trainer/sparse/step_pushes.h"

#include "kernels/base/check.h"

namespace tandem::sparse {

StepPushes::~StepPushes() {
  // A client reads the buffers until its futures complete. After a failure they complete when the
  // client is aborted.
  for (Pushed& pushed : pushes_) pushed.done.Wait(absl::InfiniteFuture()).IgnoreError();
}

void StepPushes::Begin(uint64_t step) {
  TANDEM_CHECK(pushes_.empty());
  step_ = step;
}

void StepPushes::Push(uint32_t table, std::shared_ptr<const std::vector<uint64_t>> ids,
                      Tensor gradients) {
  const ps::PushSegment segment{table, *ids, gradients.data<float>()};
  pushes_.push_back({std::move(ids), std::move(gradients), rows_->Push(step_, slice_, {segment})});
}

void StepPushes::PushPooled(const ps::Bags& bags, std::shared_ptr<const void> owner,
                            Tensor gradients) {
  auto pushed = pooled_->PushPooled(step_, slice_, bags, static_cast<size_t>(gradients.dim(1)),
                                    gradients.data<float>());
  pushes_.push_back({std::move(owner), std::move(gradients), std::move(pushed)});
}

void StepPushes::AwaitPushes(Context& context) {
  for (Pushed& pushed : pushes_) {
    context.Fail(pushed.done.Wait(context.deadline()).status());
    if (context.failed()) return;
  }
  pushes_.clear();
}

}  // namespace tandem::sparse
