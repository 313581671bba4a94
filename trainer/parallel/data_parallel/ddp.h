// Data parallelism (Li et al., "PyTorch Distributed", VLDB 2020). Split: the batch, one part per replica. Collective: a
// sum of every dense gradient over replicas. When: during the backward pass, bucket by bucket. Buckets follow the reverse
// order of the parameters and are launched strictly in bucket order on every rank, never in the order of readiness.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/parallel/gradient_buckets.h"
#include "trainer/comm/process_group.h"

namespace tandem::parallel {

struct DdpOptions {
  size_t bucket_bytes = GradientBucketOptions().bucket_bytes;
  size_t first_bucket_bytes = GradientBucketOptions().first_bucket_bytes;
};

class Ddp {
 public:
  // Places the gradients of all parameters that are not served in buckets of the group's memory. Collective over `group`, whose arrays
  // lie where the parameters do if it has several ranks.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters, comm::ProcessGroup* group,
                                                     Stream* stream, const DdpOptions& options);
  ~Ddp();

  // Clears gradients. `num_passes` backward passes make this step: only the last one reduces.
  void BeginStep(int num_passes);
  // Called before each pass, 0 .. num_passes - 1.
  void BeginPass(int pass) { gradients_->BeginPass(pass); }
  // What is told in place of the sum over replicas where passes are recorded: a bucket of several replicas is complete. Null: none is.
  void set_on_complete(std::function<void(size_t bucket)> on_complete) { on_complete_ = std::move(on_complete); }
  // In place of the passes: what an earlier step's gave the stream is run again, and fills the buckets. The caller says when each is
  // full, in their order (Reduce), unless there is one replica.
  void AcceptGradients();
  // Launches the bucket's all-reduce behind what the stream was given so far.
  void Reduce(size_t bucket);
  // After the last pass: launches what no gradient reached (as zeros), waits for every bucket, fails the context if one
  // fails. Afterwards all gradients are sums over replicas.
  void Finish(Context& context);

 private:
  Ddp(comm::ProcessGroup* group, Stream* stream) : group_(group), stream_(stream) {}
  void LaunchReady();

  comm::ProcessGroup* group_;
  Stream* stream_;
  std::unique_ptr<GradientBuckets> gradients_;
  std::function<void(size_t)> on_complete_;
  size_t next_bucket_ = 0;        // the first not launched
  std::vector<comm::Work> work_;  // of this step
};

// Ok if `value` is the same on all ranks: replicas that drifted apart are an Internal error. Collective over `group`, whose arrays lie
// in the memory of the host.
absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what, absl::Time deadline);

}  // namespace tandem::parallel
