#include "trainer/parallel/bucket_sync.h"

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::Status BucketSync::PlaceGradients(const ParameterSet& parameters, const FlatLayout& layout,
                                        const AllocateBucket& allocate) {
  const auto launch = [this](Context&, size_t) { LaunchReady(); };
  ASSIGN_OR_RETURN(gradients_,
                   GradientBuckets::Create(parameters, layout, stream_, allocate, launch));
  return absl::OkStatus();
}

BucketSync::~BucketSync() {
  // Ends the collectives of a failed step, because nobody may touch the buckets any more.
  for (comm::Work& work : work_) {
    if (!work.done()) group_->Await(work, absl::InfinitePast()).IgnoreError();
  }
  for (auto& [group, work] : holders_work_) {
    if (!work.done()) group->Await(work, absl::InfinitePast()).IgnoreError();
  }
}

void BucketSync::BeginStep(int num_passes) {
  next_bucket_ = 0;
  work_.clear();
  holders_work_.clear();
  gradients_->BeginStep(num_passes);
}

void BucketSync::Replay() {
  gradients_->AcceptGradients();
  next_bucket_ = gradients_->buckets().size();
}

void BucketSync::LaunchReady() {
  const auto& buckets = gradients_->buckets();
  while (next_bucket_ < buckets.size() && buckets[next_bucket_].missing == 0) {
    // The gradients of one replica are already the sum.
    if (group_->size() > 1 && buckets[next_bucket_].record.partial_over_dp) {
      if (on_bucket_)
        on_bucket_(next_bucket_);
      else
        Reduce(next_bucket_);
    }
    ++next_bucket_;
  }
}

void BucketSync::Finish(Context& context) {
  if (context.failed()) return;
  gradients_->Finish(context);
  TANDEM_CHECK_EQ(next_bucket_, gradients_->buckets().size());
  for (comm::Work& work : work_) context.Fail(group_->Await(work, context.deadline()));
  for (const GradientBuckets::Bucket& bucket : gradients_->buckets()) {
    if (context.failed() || !bucket.record.partial_over_tp) continue;
    comm::ProcessGroup& group = holders_->Of(bucket.record.holders);
    if (group.size() == 1) continue;
    holders_work_.emplace_back(
        &group, group.AllReduce(Summed(bucket.view),
                                {.stream = stream_, .tag = StableHash("gradients of holders")}));
  }
  for (auto& [group, work] : holders_work_) context.Fail(group->Await(work, context.deadline()));
}

}  // namespace tandem::parallel
