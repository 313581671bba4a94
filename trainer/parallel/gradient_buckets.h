// Gradients of many parameters in the buckets of a FlatLayout. A step may have several passes
// (gradient accumulation, microbatches). The last pass that reaches a parameter completes its
// gradient. Halves of several passes may run in turn, if every pass reaches every parameter.
// The owner decides what happens to a complete bucket: a sum over replicas (BucketSync) or a push
// (ServedParameters).
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter.h"
#include "trainer/parallel/flat_layout.h"

namespace tandem::parallel {

// Allocates a bucket's memory. Null: uses the parameters' device.
using AllocateBucket = std::function<absl::StatusOr<std::shared_ptr<Buffer>>(size_t bytes)>;

struct GradientBucketOptions {
  AllocateBucket allocate = nullptr;
  // A bucket has memory only from its first gradient to Release.
  bool on_demand = false;  // REQUIRES: no `allocate`
  // Every pass completes gradients, which the owner then adds up. False: the last pass does.
  bool every_pass = false;  // REQUIRES: on_demand
};

class GradientBuckets {
 public:
  struct Member : FlatMember {
    int passes = 0;         // of this step, that have given their gradient
    bool complete = false;  // the gradient of this step is complete
  };
  struct Bucket {
    GradientRecord record;  // of all members
    std::vector<Member> members;
    size_t num_bytes = 0;
    std::shared_ptr<Buffer> memory;  // zeros between gradients; null: none yet
    ArrayView view;                  // the whole bucket, while it has memory
    int missing = 0;                 // gradients not yet complete
  };
  using OnComplete = std::function<void(Context&, size_t bucket)>;

  // Places the gradients as `layout` says and hooks the members' leaves.
  // REQUIRES: the members are of `parameters`, which outlive the buckets, like the stream.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(const ParameterSet& parameters,
                                                                 const FlatLayout& layout,
                                                                 Stream* stream,
                                                                 GradientBucketOptions options,
                                                                 OnComplete on_complete);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  const GradientBucketOptions& options() const { return options_; }
  uint64_t num_bytes() const;  // of the memory that exists
  // Clears gradients. This step has `num_passes` backward passes.
  void BeginStep(int num_passes);
  // Begins pass `pass`. Call before each pass, 0 .. num_passes - 1.
  // REQUIRES: with every_pass, the buckets of the pass before are complete.
  void BeginPass(int pass);
  // Frees a bucket's memory. Its gradients are the owner's from here on.
  // REQUIRES: on_demand, and the bucket is complete.
  void Release(size_t bucket);
  // Marks all gradients complete, without a call of on_complete. Use instead of the passes.
  // REQUIRES: all gradients lie in the buckets.
  void AcceptGradients();
  // Completes the remaining buckets. Call after the last pass. A gradient that the last pass did
  // not reach keeps the earlier passes' sum, or zeros.
  void Finish(Context& context);

 private:
  GradientBuckets(Stream* stream, GradientBucketOptions options, OnComplete on_complete)
      : stream_(stream), options_(std::move(options)), on_complete_(std::move(on_complete)) {}
  void SetMemory(Bucket& bucket, std::shared_ptr<Buffer> memory) const;
  // The place of a member's gradient.
  Tensor PlaceOf(const Bucket& bucket, const Member& member) const;
  void ExpectAll();  // all gradients are missing
  void OnGradient(Context& context, size_t bucket, size_t member);

  Stream* const stream_;
  const GradientBucketOptions options_;
  const OnComplete on_complete_;
  std::vector<Bucket> buckets_;
  int num_passes_ = 1;
};

}  // namespace tandem::parallel
