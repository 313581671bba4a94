// How the gradients of a step reach the owners of their parameters, and the next step's weights come back. Data parallelism sums
// gradients over replicas, served parameters are pushed to servers; the loop does not ask which. A step:
//   AwaitWeights; BeginStep; for each backward pass BeginPass and the pass; Finish; the optimizers' update; PullWeights of the next step
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

  // Clears gradients. `num_passes` backward passes make this step; only the last one completes gradients.
  virtual void BeginStep(int num_passes) = 0;
  // Called before each pass, 0 .. num_passes - 1.
  virtual void BeginPass(int pass) = 0;
  // After the last pass: gradients that no pass reached count as zeros. Returns when all sums are here, or are on their way to their owner.
  // Fails the context if one cannot be.
  virtual void Finish(Context& context) = 0;
  // Names a parameter whose gradient was not finite and stayed here: no replica may apply the step. Nothing if all went their way.
  virtual std::optional<std::string> KeptBack() const { return std::nullopt; }

  // While passes are recorded: tells of a complete bucket instead of reducing its gradients. Null: reduces again.
  virtual void OnBucket(std::function<void(size_t bucket)> on_bucket) = 0;
  // In place of the passes, when a recorded step runs again and fills the buckets. The caller calls Reduce(b) for b = 0, 1, ... as it was
  // told by OnBucket.
  virtual void Replay() = 0;
  // Launches the bucket's sum behind what the stream was given so far.
  virtual void Reduce(size_t bucket) = 0;

  // Asks for the weights that step `step` will use; 0: as they are now.
  virtual void PullWeights(uint64_t step) { static_cast<void>(step); }
  // Waits for what PullWeights asked for, and makes it the parameters' values, shadows included.
  virtual absl::Status AwaitWeights(absl::Time deadline) { return static_cast<void>(deadline), absl::OkStatus(); }

  // Adds entries to `state`, with zeros, for the parameters whose owner is elsewhere.
  virtual void AddEntries(optim::DenseState* state) const { static_cast<void>(state); }
  // Fills the entries that AddEntries added with what their owner has.
  virtual absl::Status ReadState(optim::DenseState* state, absl::Time deadline) const {
    return static_cast<void>(state), static_cast<void>(deadline), absl::OkStatus();
  }
  // Gives owners elsewhere their first state; null: this replica's values, with new slots. One replica calls, before the first PullWeights
  // of any.
  virtual absl::Status WriteState(const optim::DenseState* state, absl::Time deadline) const {
    return static_cast<void>(state), static_cast<void>(deadline), absl::OkStatus();
  }
};

}  // namespace tandem::parallel
