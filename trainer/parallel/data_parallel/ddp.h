// Data parallelism (Li et al., "PyTorch Distributed", VLDB 2020). Each replica trains on one part
// of the batch, and an all-reduce sums every dense gradient over replicas. All replicas hold whole
// weights, gradients and moments, and make the same update.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/parallel/bucket_sync.h"

namespace tandem::parallel {

class Ddp final : public BucketSync {
 public:
  // Places the gradients of all parameters, or only of `members`, in buckets of the group's memory.
  // Collective over `group`. `holders` null: the model is whole.
  // REQUIRES: if the group has several ranks, its arrays lie where the parameters do.
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters,
                                                     comm::ProcessGroup* group, Stream* stream,
                                                     const FlatLayoutOptions& options);
  static absl::StatusOr<std::unique_ptr<Ddp>> Create(ParameterSet* parameters,
                                                     const std::vector<Parameter*>& members,
                                                     comm::ProcessGroup* group,
                                                     const HolderGroups* holders, Stream* stream,
                                                     const FlatLayoutOptions& options);

 private:
  using BucketSync::BucketSync;
  comm::Work Sum(size_t bucket) override;
  ArrayView SumOf(size_t bucket) const override { return gradients().buckets()[bucket].view; }
};

// Returns Ok if `value` is the same on all ranks, and Internal if replicas have drifted apart.
// Collective over `group`.
// REQUIRES: the group's arrays lie in host memory.
absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what,
                         absl::Time deadline);

}  // namespace tandem::parallel
