// Data parallelism (Li et al., "PyTorch Distributed", VLDB 2020). Each replica trains on one part
// of the batch. A collective sums every dense gradient over replicas. The sums run during the
// backward pass, bucket by bucket. Buckets follow the reverse order of the parameters.
// Invariant: every rank launches buckets strictly in bucket order, never in the order of readiness.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/comm/process_group.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"

namespace tandem::parallel {

struct DdpOptions {
  size_t bucket_bytes = GradientBucketOptions().bucket_bytes;
  size_t first_bucket_bytes = GradientBucketOptions().first_bucket_bytes;
};

class Ddp final : public GradientSync {
 public:
  // Places the gradients of all parameters, or only of `members`, in buckets of the group's memory.
  // Collective over `group`.
  // REQUIRES: if the group has several ranks, its arrays lie where the parameters do.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters,
                                                     comm::ProcessGroup* group, Stream* stream,
                                                     const DdpOptions& options);
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters,
                                                     const std::vector<Parameter*>& members,
                                                     comm::ProcessGroup* group, Stream* stream,
                                                     const DdpOptions& options);
  ~Ddp() override;

  void BeginStep(int num_passes) override;
  void BeginPass(int pass) override { gradients_->BeginPass(pass); }
  // Waits for every bucket. Afterwards all gradients are sums over replicas.
  void Finish(Context& context) override;
  // Reports buckets only with several replicas. The gradients of one replica are already the sum.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override {
    on_bucket_ = std::move(on_bucket);
  }
  void Replay() override;
  void Reduce(size_t bucket) override;

 private:
  Ddp(comm::ProcessGroup* group, Stream* stream) : group_(group), stream_(stream) {}
  void LaunchReady();

  comm::ProcessGroup* group_;
  Stream* stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_bucket_;
  size_t next_bucket_ = 0;        // the first bucket not launched
  std::vector<comm::Work> work_;  // of this step
};

// Returns Ok if `value` is the same on all ranks, and Internal if replicas have drifted apart.
// Collective over `group`.
// REQUIRES: the group's arrays lie in host memory.
absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what,
                         absl::Time deadline);

}  // namespace tandem::parallel
