#include "trainer/parallel/bucket_sync.h"

#include <utility>

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::Status BucketSync::PlaceGradients(const ParameterSet& parameters, const FlatLayout& layout,
                                        GradientBucketOptions options) {
  const auto launch = [this](Context& context, size_t) { LaunchReady(context); };
  ASSIGN_OR_RETURN(
      gradients_, GradientBuckets::Create(parameters, layout, stream_, std::move(options), launch));
  return absl::OkStatus();
}

BucketSync::~BucketSync() {
  // Ends the collectives of a failed step, because nobody may touch the buckets any more.
  for (const BucketWork& sum : sums_) {
    if (!sum.work.done()) group_->Await(sum.work, absl::InfinitePast()).IgnoreError();
  }
  for (auto& [group, work] : holders_work_) {
    if (!work.done()) group->Await(work, absl::InfinitePast()).IgnoreError();
  }
}

void BucketSync::BeginStep(int num_passes) {
  pass_ = 0;
  next_bucket_ = 0;
  sums_.clear();
  holders_work_.clear();
  gradients_->BeginStep(num_passes);
}

void BucketSync::BeginPass(Context& context, int pass) {
  if (gradients_->options().every_pass && pass > 0) {
    gradients_->Finish(context);
    AwaitSums(context);
    next_bucket_ = 0;
  }
  pass_ = pass;
  gradients_->BeginPass(pass);
}

void BucketSync::Replay() {
  gradients_->AcceptGradients();
  next_bucket_ = gradients_->buckets().size();
}

void BucketSync::LaunchReady(Context& context) {
  const auto& buckets = gradients_->buckets();
  while (next_bucket_ < buckets.size() && buckets[next_bucket_].missing == 0) {
    // With memory on demand, one bucket travels while the next one fills.
    if (gradients_->options().on_demand) AwaitSums(context);
    // The gradients of one replica are already the sum.
    if (group_->size() == 1 || !buckets[next_bucket_].record.partial_over_dp)
      TakeSum(next_bucket_, /*in_place=*/true);
    else if (on_bucket_)
      on_bucket_(next_bucket_);
    else if (!context.failed())
      Reduce(next_bucket_);
    ++next_bucket_;
  }
}

void BucketSync::AwaitSums(Context& context) {
  for (const BucketWork& sum : sums_) {
    context.Fail(group_->Await(sum.work, context.deadline()));
    TakeSum(sum.bucket, /*in_place=*/false);
  }
  sums_.clear();
}

void BucketSync::Finish(Context& context) {
  if (context.failed()) return;
  gradients_->Finish(context);
  TANDEM_CHECK_EQ(next_bucket_, gradients_->buckets().size());
  AwaitSums(context);
  for (size_t b = 0; b < gradients_->buckets().size(); ++b) {
    const GradientRecord& record = gradients_->buckets()[b].record;
    if (context.failed() || !record.partial_over_tp) continue;
    comm::ProcessGroup& group = holders_->Of(record.holders);
    if (group.size() == 1) continue;
    holders_work_.emplace_back(
        &group,
        group.AllReduce(SumOf(b), {.stream = stream_, .tag = StableHash("gradients of holders")}));
  }
  AwaitHolders(context);
  for (size_t b = 0; b < gradients_->buckets().size(); ++b) {
    if (context.failed() || !gradients_->buckets()[b].record.tied_over_pp) continue;
    comm::ProcessGroup* const group = holders_->tied();
    holders_work_.emplace_back(
        group,
        group->AllReduce(SumOf(b), {.stream = stream_, .tag = StableHash("gradients of stages")}));
  }
  AwaitHolders(context);
}

void BucketSync::AwaitHolders(Context& context) {
  for (auto& [group, work] : holders_work_) context.Fail(group->Await(work, context.deadline()));
  if (!context.failed()) holders_work_.clear();
}

}  // namespace tandem::parallel
