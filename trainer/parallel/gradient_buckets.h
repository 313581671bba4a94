// Gradients of many parameters side by side in a few large buckets of memory, so that many
// gradients travel as one. Buckets follow the reverse order of the parameters, in which a backward
// pass completes them. A step may have several passes (gradient accumulation). Only the last pass
// completes gradients.
// The owner decides what happens to a complete bucket: an all-reduce (Ddp) or a push
// (ServedParameters).
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter.h"

namespace tandem::parallel {

struct GradientBucketOptions {
  size_t bucket_bytes = 25 << 20;
  size_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early
  size_t unit_bytes = 64;               // a bucket's memory is a multiple of unit_bytes
  // Allocates a bucket's memory. Null: uses the parameters' device.
  std::function<absl::StatusOr<std::shared_ptr<Buffer>>(size_t bytes)> allocate = nullptr;
};

class GradientBuckets {
 public:
  struct Member {
    Parameter* parameter = nullptr;
    size_t offset = 0;      // byte offset in the bucket; keeps vector loads aligned
    bool complete = false;  // the gradient of this step is complete
  };
  struct Bucket {
    std::vector<Member> members;
    std::shared_ptr<Buffer> memory;  // zeros between gradients
    ArrayView view;                  // the whole bucket
    int missing = 0;                 // gradients of this step not yet complete
  };
  using OnComplete = std::function<void(Context&, size_t bucket)>;

  // Places the gradients of `members` in buckets and hooks the members' leaves.
  // REQUIRES: `members` are of `parameters`, and all arguments outlive the buckets.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(
      const ParameterSet& parameters, const std::vector<Parameter*>& members, Stream* stream,
      const GradientBucketOptions& options, OnComplete on_complete);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
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
