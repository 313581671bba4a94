// Gradients of parameters side by side in a few large pieces of memory, so that many travel as one. Buckets follow the reverse order
// of the parameters, in which a backward pass completes them; of several passes in a step (gradient accumulation) only the last one
// completes any. What becomes of a complete bucket is the owner's: an all-reduce (Ddp), a push (ServedParameters).
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
  size_t unit_bytes = 64;               // a bucket's memory is a multiple of it
  // Memory for a bucket; null: the parameters' device's.
  std::function<absl::StatusOr<std::shared_ptr<Buffer>>(size_t bytes)> allocate = nullptr;
};

class GradientBuckets {
 public:
  struct Member {
    Parameter* parameter = nullptr;
    size_t offset = 0;  // bytes into the bucket; vector loads stay aligned
    bool complete = false;  // its gradient of this step
  };
  struct Bucket {
    std::vector<Member> members;
    std::shared_ptr<Buffer> memory;  // between gradients: zeros
    ArrayView view;                  // all of it
    int missing = 0;                 // gradients of this step
  };
  using OnComplete = std::function<void(Context&, size_t bucket)>;

  // Places the gradients of `members`, which are of `parameters`, and hooks their leaves. All outlive the buckets.
  static absl::StatusOr<std::unique_ptr<GradientBuckets>> Create(const ParameterSet& parameters,
                                                                 const std::vector<Parameter*>& members, Stream* stream,
                                                                 const GradientBucketOptions& options, OnComplete on_complete);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Clears gradients. `num_passes` backward passes make this step.
  void BeginStep(int num_passes);
  // Called before each pass, 0 .. num_passes - 1.
  void BeginPass(int pass) { last_pass_ = pass + 1 == num_passes_; }
  // In place of the passes: all gradients lie in the buckets already. Nothing is told.
  void AcceptGradients();
  // After the last pass: what it did not reach keeps the sum of the passes before, or zeros, and its buckets complete.
  void Finish(Context& context);

 private:
  GradientBuckets(Stream* stream, OnComplete on_complete) : stream_(stream), on_complete_(std::move(on_complete)) {}
  void OnGradient(Context& context, size_t bucket, size_t member);

  Stream* const stream_;
  const OnComplete on_complete_;
  std::vector<Bucket> buckets_;
  int num_passes_ = 1;
  bool last_pass_ = true;
};

}  // namespace tandem::parallel
