#include "trainer/parallel/data_parallel/ddp.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(ParameterSet* parameters,
                                                 comm::ProcessGroup* group, Stream* stream,
                                                 const DdpOptions& options) {
  return Create(parameters, parameters->pointers(), group, stream, options);
}

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(ParameterSet* parameters,
                                                 const std::vector<Parameter*>& members,
                                                 comm::ProcessGroup* group, Stream* stream,
                                                 const DdpOptions& options) {
  std::unique_ptr<Ddp> ddp(new Ddp(group, stream));
  GradientBucketOptions buckets{.bucket_bytes = options.bucket_bytes,
                                .first_bucket_bytes = options.first_bucket_bytes};
  if (group->size() > 1)
    buckets.allocate = [group](size_t bytes) { return group->Allocate(bytes); };
  const auto launch = [ddp = ddp.get()](Context&, size_t) { ddp->LaunchReady(); };
  ASSIGN_OR_RETURN(ddp->gradients_,
                   GradientBuckets::Create(*parameters, members, stream, buckets, launch));
  return ddp;
}

Ddp::~Ddp() {
  // Ends the collectives of a failed step, because nobody may touch the buckets any more.
  for (comm::Work& work : work_) {
    if (!work.done()) group_->Await(work, absl::InfinitePast()).IgnoreError();
  }
}

void Ddp::BeginStep(int num_passes) {
  next_bucket_ = 0;
  work_.clear();
  gradients_->BeginStep(num_passes);
}

void Ddp::Replay() {
  gradients_->AcceptGradients();
  next_bucket_ = gradients_->buckets().size();
}

void Ddp::LaunchReady() {
  const auto& buckets = gradients_->buckets();
  while (next_bucket_ < buckets.size() && buckets[next_bucket_].missing == 0) {
    if (group_->size() > 1) {  // the gradients of one replica are already the sum
      if (on_bucket_)
        on_bucket_(next_bucket_);
      else
        Reduce(next_bucket_);
    }
    ++next_bucket_;
  }
}

void Ddp::Reduce(size_t bucket) {
  work_.push_back(group_->AllReduce(gradients_->buckets()[bucket].view,
                                    {.stream = stream_, .tag = StableHash("ddp") + bucket}));
}

void Ddp::Finish(Context& context) {
  if (context.failed()) return;
  gradients_->Finish(context);
  TANDEM_CHECK_EQ(next_bucket_, gradients_->buckets().size());
  for (comm::Work& work : work_) context.Fail(group_->Await(work, context.deadline()));
}

absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what,
                         absl::Time deadline) {
  uint64_t low = value, high = value;
  const ArrayView low_view = DenseView(&low, Shape{1}), high_view = DenseView(&high, Shape{1});
  RETURN_IF_ERROR(group.Await(group.AllReduce(low_view, {.op = comm::ReduceOp::MIN}), deadline));
  RETURN_IF_ERROR(group.Await(group.AllReduce(high_view, {.op = comm::ReduceOp::MAX}), deadline));
  if (low == high) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("replicas differ in their ", what, ": replica ",
                                          group.rank(), " has ", absl::Hex(value, absl::kZeroPad16),
                                          ", others ",
                                          absl::Hex(value == low ? high : low, absl::kZeroPad16)));
}

}  // namespace tandem::parallel
