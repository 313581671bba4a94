// A GradientSync that sums gradients over replicas bucket by bucket, during the backward pass. What
// a sum is, and who needs it, differs: all replicas (data_parallel/ddp.h), or one for each element
// (zero/zero.h). Gradients of which tensor-parallel ranks or stages have parts are then summed over
// these.
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
  void BeginPass(Context& context, int pass) override;
  // Waits for the sum of every bucket, first over replicas, then over holders, then over stages.
  void Finish(Context& context) override;
  // Reports buckets only with several replicas. The gradients of one replica are already the sum.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override {
    on_bucket_ = std::move(on_bucket);
  }
  uint64_t gradient_bytes() const override { return gradients_->num_bytes(); }
  void Replay() override;
  void Reduce(size_t bucket) override { sums_.push_back({bucket, Sum(bucket)}); }

 protected:
  // `holders` are those of the parameters' records.
  BucketSync(comm::ProcessGroup* group, const HolderGroups* holders, Stream* stream)
      : group_(group), holders_(holders), stream_(stream) {}

  // A subclass calls PlaceGradients once, when it is made.
  absl::Status PlaceGradients(const ParameterSet& parameters, const FlatLayout& layout,
                              GradientBucketOptions options);
  // Launches the sum of a bucket, behind the work that the stream already has.
  virtual comm::Work Sum(size_t bucket) = 0;
  // Takes a bucket whose sum over replicas is here. `in_place`: it needed none, and lies in the
  // bucket.
  virtual void TakeSum(size_t /*bucket*/, bool /*in_place*/) {}
  // The elements of a bucket whose sum this rank has.
  virtual ArrayView SumOf(size_t bucket) const = 0;

  comm::ProcessGroup& group() const { return *group_; }
  Stream& stream() const { return *stream_; }
  GradientBuckets& gradients() const { return *gradients_; }
  int pass() const { return pass_; }

 private:
  // A sum over replicas in flight.
  struct BucketWork {
    size_t bucket;
    comm::Work work;
  };

  void LaunchReady(Context& context);
  void AwaitSums(Context& context);
  void AwaitHolders(Context& context);

  comm::ProcessGroup* const group_;
  const HolderGroups* const holders_;
  Stream* const stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_bucket_;
  int pass_ = 0;
  size_t next_bucket_ = 0;  // the first bucket not launched
  std::vector<BucketWork> sums_;
  std::vector<std::pair<comm::ProcessGroup*, comm::Work>> holders_work_;
};

}  // namespace tandem::parallel
