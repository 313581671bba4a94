// ZeRO stage 1 (Rajbhandari et al., SC 2020). Every replica holds whole weights and gradients, and
// owns an equal part of each bucket: the moments of these elements and their update. During the
// backward pass a reduce-scatter brings each sum to its owner. After the update an all-gather
// brings the new weights to all replicas.
// The result is that of data parallelism, because optimizers work element by element.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/bucket_sync.h"

namespace tandem::parallel {

// The layout of gradients and weights that `num_replicas` replicas cut into equal parts.
FlatLayout ZeroLayout(const std::vector<Parameter*>& parameters, int num_replicas);

class Zero final : public BucketSync {
 public:
  // Places gradients and weights as `layout`, a ZeroLayout, says. Collective over `group`, the
  // replicas. Rank r owns part r of each bucket (RangesOfPart).
  // REQUIRES: if the group has several ranks, its arrays lie where the parameters do.
  static absl::StatusOr<std::unique_ptr<Zero>> Create(ParameterSet* parameters,
                                                      const FlatLayout& layout,
                                                      comm::ProcessGroup* group,
                                                      const HolderGroups* holders, Stream* stream);
  ~Zero() override;

  // Starts to gather the weights that the replicas have updated, and waits for them.
  void PullWeights(uint64_t step) override;
  absl::Status AwaitWeights(absl::Time deadline) override;

 private:
  Zero(ParameterSet* parameters, comm::ProcessGroup* group, const HolderGroups* holders,
       Stream* stream)
      : BucketSync(group, holders, stream), parameters_(parameters) {}
  comm::Work Sum(const GradientBuckets::Bucket& bucket, size_t number) override;
  // The part of a bucket's array that this rank owns.
  ArrayView OwnPart(const ArrayView& bucket) const;
  ArrayView Summed(const ArrayView& bucket) const override { return OwnPart(bucket); }

  ParameterSet* const parameters_;
  std::vector<Tensor> weights_;  // one flat array for each bucket
  std::vector<comm::Work> gathers_;
};

}  // namespace tandem::parallel
