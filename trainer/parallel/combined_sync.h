// Several GradientSyncs behind one interface, each with its own parameters. Every call goes to all
// parts, in order. So the loop needs only one GradientSync.
// Thread rule: the step's thread.
#pragma once

#include <memory>
#include <vector>

#include "trainer/parallel/gradient_sync.h"

namespace tandem::parallel {

class CombinedSync final : public GradientSync {
 public:
  explicit CombinedSync(std::vector<std::unique_ptr<GradientSync>> parts)
      : parts_(std::move(parts)) {}

  void BeginStep(int num_passes) override;
  void BeginPass(Context& context, int pass) override;
  void Finish(Context& context) override;
  std::optional<std::string> KeptBack() const override;
  // REQUIRES: one part only. A recording knows a bucket by its number, which is unique only within
  // a part.
  void OnBucket(std::function<void(size_t bucket)> on_bucket) override;
  void Replay() override;
  void Reduce(size_t bucket) override;
  uint64_t gradient_bytes() const override;
  void PullWeights(uint64_t step) override;
  absl::Status AwaitWeights(absl::Time deadline) override;
  void AddEntries(optim::DenseState* state) const override;
  absl::Status ReadState(optim::DenseState* state, absl::Time deadline) const override;
  absl::Status WriteState(const optim::DenseState* state, absl::Time deadline) const override;

 private:
  GradientSync& only() const;

  const std::vector<std::unique_ptr<GradientSync>> parts_;
};

}  // namespace tandem::parallel
