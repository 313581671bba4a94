// Gradients of many parameters in the buckets of a FlatLayout. A step may have several passes
// (gradient accumulation). Only the last pass completes gradients.
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

class GradientBuckets {
 public:
  struct Member : FlatMember {
    bool complete = false;  // the gradient of this step is complete
  };
  struct Bucket {
    GradientRecord record;  // of all members
    std::vector<Member> members;
    std::shared_ptr<Buffer> memory;  // zeros between gradients
    ArrayView view;                  // the whole bucket
    int missing = 0;                 // gradients of this step not yet complete
  };
  using OnComplete = std::function<void(Context&, size_t bucket)>;

  // Places the gradients as `layout` says and hooks the members' leaves.
  // REQUIRES: the members are of `parameters`, which outlive the buckets, like the stream.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(const ParameterSet& parameters,
                                                                 const FlatLayout& layout,
                                                                 Stream* stream,
                                                                 const AllocateBucket& allocate,
                                                                 OnComplete on_complete);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint64_t num_bytes() const;
  // Clears gradients. This step has `num_passes` backward passes.
  void BeginStep(int num_passes);
  // Begins pass `pass`. Call before each pass, 0 .. num_passes - 1.
  void BeginPass(int pass) { last_pass_ = pass + 1 == num_passes_; }
  // Marks all gradients complete, without a call of on_complete. Use instead of the passes.
  // REQUIRES: all gradients lie in the buckets.
  void AcceptGradients();
  // Completes the remaining buckets. Call after the last pass. A gradient that the last pass did
  // not reach keeps the earlier passes' sum, or zeros.
  void Finish(Context& context);

 private:
  GradientBuckets(Stream* stream, OnComplete on_complete)
      : stream_(stream), on_complete_(std::move(on_complete)) {}
  void OnGradient(Context& context, size_t bucket, size_t member);

  Stream* const stream_;
  const OnComplete on_complete_;
  std::vector<Bucket> buckets_;
  int num_passes_ = 1;
  bool last_pass_ = true;
};

}  // namespace tandem::parallel
