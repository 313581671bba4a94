// Sends a step's gradients to the owners of their parameters and brings the next step's weights
// back. Data parallelism sums gradients over replicas; served parameters push to servers. The loop
// need not know which. A step:
//     AwaitWeights; BeginStep; for each backward pass BeginPass and the pass; Finish;
//     the optimizers' update; PullWeights of the next step
// With a recorded CUDA graph, Replay takes the place of the passes.
// Thread rule: the step's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/autograd/context.h"
#include "trainer/optim/dense_state.h"

namespace tandem::parallel {

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  // Clears gradients. This step has `num_passes` backward passes. Only the last pass completes
  // gradients.
  virtual void BeginStep(int num_passes) = 0;
  // Begins pass `pass`. Call before each pass, 0 .. num_passes - 1.
  virtual void BeginPass(Context& context, int pass) = 0;
  // Ends the passes. Gradients that no pass reached count as zeros. Returns when all sums are here
  // or in flight to their owner. Fails the context if a sum can be neither.
  virtual void Finish(Context& context) = 0;
  // Names a parameter whose gradient was not finite and stayed here. No replica may apply the step
  // then. Returns nullopt if all gradients were sent.
  virtual std::optional<std::string> KeptBack() const { return std::nullopt; }

  // Reports complete buckets to `on_bucket` instead of reducing their gradients. Use while
  // recording passes. Null: reduces again.
  virtual void OnBucket(std::function<void(size_t bucket)> on_bucket) = 0;
  // Use instead of the passes when a CUDA graph replays them. The caller then calls Reduce(b) for b
  // = 0, 1, ... as OnBucket reported during recording.
  virtual void Replay() = 0;
  // Launches the bucket's sum behind the work that the stream already has.
  virtual void Reduce(size_t bucket) = 0;

  // The memory that gradients take between two steps, in bytes.
  virtual uint64_t gradient_bytes() const = 0;

  // Asks for the weights of step `step`. Step 0 asks for the current weights.
  virtual void PullWeights(uint64_t /*step*/) {}
  // Waits for the weights of PullWeights. Makes them the parameters' values, shadows included.
  virtual absl::Status AwaitWeights(absl::Time /*deadline*/) { return absl::OkStatus(); }

  // Adds entries of zeros to `state` for the parameters whose owner is elsewhere.
  virtual void AddEntries(optim::DenseState* /*state*/) const {}
  // Fills the entries of AddEntries with the owners' values.
  virtual absl::Status ReadState(optim::DenseState* /*state*/, absl::Time /*deadline*/) const {
    return absl::OkStatus();
  }
  // Gives owners elsewhere their first state. Null: this replica's values, with new slots.
  // REQUIRES: one replica calls, before the first PullWeights of any replica.
  virtual absl::Status WriteState(const optim::DenseState* /*state*/,
                                  absl::Time /*deadline*/) const {
    return absl::OkStatus();
  }
};

}  // namespace tandem::parallel
