// Counts the bytes that a step's collectives move on each axis of the mesh: an all-reduce counts
// its array twice, a gather, reduce-scatter or broadcast the whole array once.
//
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/process_group.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

class CollectiveMeter final : public StepObserver {
 public:
  // The groups of each axis, by name. They outlive the meter. A group counts for the first axis
  // that has it.
  using Axes = std::vector<std::pair<std::string, std::vector<const comm::ProcessGroup*>>>;
  explicit CollectiveMeter(Axes axes);

  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;

  const Axes& axes() const { return axes_; }
  // By axis: bytes of a step, the mean of all steps.
  std::vector<uint64_t> bytes_per_step() const;

 private:
  uint64_t MovedOn(size_t axis) const;

  Axes axes_;
  std::vector<uint64_t> before_, sums_;
  uint64_t steps_ = 0;
};

}  // namespace tandem::report
