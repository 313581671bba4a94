// A GradientSync that sums gradients over replicas bucket by bucket, during the backward pass. What
// a sum is, and who needs it, differs: all replicas (data_parallel/ddp.h), or one for each element
// (zero/zero.h).
// Thread rule: the step's thread.
// Invariant: every rank launches buckets strictly in bucket order, never in the order of readiness.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer/comm/process_group.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"

namespace tandem::parallel {

class BucketSync : public GradientSync {
 public:
  ~BucketSync() override;

  void BeginStep(int num_passes) override;
  void BeginPass(int pass) override { gradients_->BeginPass(pass); }
  // Waits for the sum of every bucket.
  void Finish(Context& context) override;
  // Reports buckets only with several replicas. The gradients of one replica are already the sum.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override {
    on_bucket_ = std::move(on_bucket);
  }
  void Replay() override;
  void Reduce(size_t bucket) override {
    work_.push_back(Sum(gradients_->buckets()[bucket], bucket));
  }

 protected:
  BucketSync(comm::ProcessGroup* group, Stream* stream) : group_(group), stream_(stream) {}

  // A subclass calls PlaceGradients once, when it is made.
  absl::Status PlaceGradients(const ParameterSet& parameters, const FlatLayout& layout,
                              const AllocateBucket& allocate);
  // Launches the sum of a bucket, behind the work that the stream already has.
  virtual comm::Work Sum(const GradientBuckets::Bucket& bucket, size_t number) = 0;

  comm::ProcessGroup& group() const { return *group_; }
  Stream& stream() const { return *stream_; }

 private:
  void LaunchReady();

  comm::ProcessGroup* const group_;
  Stream* const stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_bucket_;
  size_t next_bucket_ = 0;        // the first bucket not launched
  std::vector<comm::Work> work_;  // of this step
};

}  // namespace tandem::parallel
