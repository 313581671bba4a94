// ZeRO (Rajbhandari et al., SC 2020): replicas share the memory of the model's state. Each bucket
// of parameters is cut into one equal part for each replica, its owner.
//   stage 1: the owner has the moments of its part and makes the update; weights and gradients are
//            whole on every replica
//   stage 2: also the gradients' sums exist only as parts; a bucket is whole only while it fills
//            and travels
//   stage 3: also the weights exist only as parts (gathered_weights.h)
// During the backward pass a reduce-scatter brings each sum to its owner. All-gathers bring the new
// weights to all replicas: after the update, or (3) before each use.
// The result is that of data parallelism, because optimizers work element by element.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/parallel/bucket_sync.h"
#include "trainer/parallel/zero/gathered_weights.h"

namespace tandem::parallel {

// The layout of gradients and weights that `num_replicas` replicas cut into equal parts. In stage 3
// a bucket has parameters of one block.
FlatLayout ZeroLayout(const std::vector<Parameter*>& parameters, int num_replicas, int stage);

struct ZeroOptions {
  int stage = 1;
  // Stages 2 and 3, in a step of several passes. True: every pass's gradients go to their owners,
  // which takes the least memory. False: they add up in whole buckets, and travel once.
  bool sum_every_pass = true;
  absl::Duration timeout = absl::Seconds(60);  // of a gather, stage 3
};

class Zero final : public BucketSync {
 public:
  // Places gradients and weights as `layout`, a ZeroLayout of the stage, says. Collective over
  // `group`, the replicas. Rank r owns part r of each bucket (RangesOfPart). In stage 3
  // `parameters` may lack values, and the parts get their initial values. REQUIRES: if the group
  // has several ranks, its arrays lie where the parameters do.
  static absl::StatusOr<std::unique_ptr<Zero>> Create(ParameterSet* parameters,
                                                      const FlatLayout& layout,
                                                      comm::ProcessGroup* group,
                                                      const HolderGroups* holders, Stream* stream,
                                                      const ZeroOptions& options);
  ~Zero() override;

  void BeginStep(int num_passes) override;
  void BeginPass(Context& context, int pass) override;
  void Finish(Context& context) override;
  uint64_t gradient_bytes() const override;
  // Starts to gather the weights that the replicas have updated, and waits for them. Stage 3 frees
  // the weights of before.
  void PullWeights(uint64_t step) override;
  absl::Status AwaitWeights(absl::Time deadline) override;

 private:
  Zero(ParameterSet* parameters, comm::ProcessGroup* group, const HolderGroups* holders,
       Stream* stream, const ZeroOptions& options)
      : BucketSync(group, holders, stream), parameters_(parameters), options_(options) {}
  // Moves weights into flat arrays, one for each bucket.
  void MoveWeights(const FlatLayout& layout);
  // Makes the memory of this rank's parts of gradients.
  void MakeParts(const FlatLayout& layout);

  comm::Work Sum(size_t bucket) override;
  void TakeSum(size_t bucket, bool in_place) override;
  ArrayView SumOf(size_t bucket) const override;
  // The part of a bucket's array that this rank owns.
  ArrayView OwnPart(const ArrayView& bucket) const;
  bool cuts_gradients() const { return options_.stage >= 2; }
  // The pass whose gradients a sum adds up; 0 if a sum has those of all passes.
  int pass_of_sums() const;

  ParameterSet* const parameters_;
  const ZeroOptions options_;
  std::vector<Tensor> weights_;  // stages 1 and 2
  std::vector<comm::Work> gathers_;
  std::unique_ptr<GatheredWeights> gathered_;  // stage 3
  // Stages 2 and 3: this rank's part of each bucket's sum, and what lies in the part.
  std::vector<Tensor> sums_;
  std::vector<std::vector<FlatPiece>> pieces_;
};

}  // namespace tandem::parallel
