// Data parallelism (Li et al., "PyTorch Distributed", VLDB 2020). Split: the batch, one part per replica. Collective: a
// sum of every dense gradient over replicas. When: during the backward pass, bucket by bucket. Buckets follow the reverse
// order of the parameters and are launched strictly in bucket order on every rank, never in the order of readiness.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/comm/process_group.h"

namespace tandem::parallel {

struct DdpOptions {
  size_t bucket_bytes = GradientBucketOptions().bucket_bytes;
  size_t first_bucket_bytes = GradientBucketOptions().first_bucket_bytes;
};

class Ddp final : public GradientSync {
 public:
  // Places the gradients of all parameters, or of `members` alone, in buckets of the group's memory. Collective over `group`, whose arrays
  // lie where the parameters do if it has several ranks.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters, comm::ProcessGroup* group, Stream* stream,
                                                     const DdpOptions& options);
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters, const std::vector<Parameter*>& members,
                                                     comm::ProcessGroup* group, Stream* stream, const DdpOptions& options);
  ~Ddp() override;

  void BeginStep(int num_passes) override;
  void BeginPass(int pass) override { gradients_->BeginPass(pass); }
  // Waits for every bucket. Afterwards all gradients are sums over replicas.
  void Finish(Context& context) override;
  // Told of buckets of several replicas alone: the gradients of one are the sum.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override { on_bucket_ = std::move(on_bucket); }
  void Replay() override;
  void Reduce(size_t bucket) override;

 private:
  Ddp(comm::ProcessGroup* group, Stream* stream) : group_(group), stream_(stream) {}
  void LaunchReady();

  comm::ProcessGroup* group_;
  Stream* stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_bucket_;
  size_t next_bucket_ = 0;        // the first not launched
  std::vector<comm::Work> work_;  // of this step
};

// Ok if `value` is the same on all ranks: replicas that drifted apart are an Internal error. Collective over `group`, whose arrays lie
// in the memory of the host.
absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what, absl::Time deadline);

}  // namespace tandem::parallel
