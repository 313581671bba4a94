// A GradientSync that sums gradients over replicas bucket by bucket, during the backward pass. What
// a sum is, and who needs it, differs: all replicas (data_parallel/ddp.h), or one for each element
// (zero/zero.h). Gradients of which tensor-parallel ranks have parts are then summed over these.
// Thread rule: the step's thread.
// Invariant: every rank launches buckets strictly in bucket order, never in the order of readiness.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/comm/process_group.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/holder_groups.h"

namespace tandem::parallel {

class BucketSync : public GradientSync {
 public:
  ~BucketSync() override;

  void BeginStep(int num_passes) override;
  void BeginPass(int pass) override { gradients_->BeginPass(pass); }
  // Waits for the sum of every bucket, first over replicas, then over holders.
  void Finish(Context& context) override;
  // Reports buckets only with several replicas. The gradients of one replica are already the sum.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override {
    on_bucket_ = std::move(on_bucket);
  }
  uint64_t gradient_bytes() const override { return gradients_->num_bytes(); }
  void Replay() override;
  void Reduce(size_t bucket) override {
    work_.push_back(Sum(gradients_->buckets()[bucket], bucket));
  }

 protected:
  // `holders` are those of the parameters' records.
  BucketSync(comm::ProcessGroup* group, const HolderGroups* holders, Stream* stream)
      : group_(group), holders_(holders), stream_(stream) {}

  // A subclass calls PlaceGradients once, when it is made.
  absl::Status PlaceGradients(const ParameterSet& parameters, const FlatLayout& layout,
                              const AllocateBucket& allocate);
  // Launches the sum of a bucket, behind the work that the stream already has.
  virtual comm::Work Sum(const GradientBuckets::Bucket& bucket, size_t number) = 0;
  // The elements of a bucket whose sum this rank has.
  virtual ArrayView Summed(const ArrayView& bucket) const = 0;

  comm::ProcessGroup& group() const { return *group_; }
  Stream& stream() const { return *stream_; }

 private:
  void LaunchReady();

  comm::ProcessGroup* const group_;
  const HolderGroups* const holders_;
  Stream* const stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_bucket_;
  size_t next_bucket_ = 0;        // the first bucket not launched
  std::vector<comm::Work> work_;  // of this step, over replicas
  std::vector<std::pair<comm::ProcessGroup*, comm::Work>> holders_work_;
};

}  // namespace tandem::parallel
