#include "trainer/report/collective_meter.h"

#include <algorithm>
#include <set>

namespace tandem::report {

CollectiveMeter::CollectiveMeter(Axes axes)
    : axes_(std::move(axes)), before_(axes_.size()), sums_(axes_.size()) {
  std::set<const comm::ProcessGroup*> known;
  for (auto& [name, groups] : axes_) {
    std::erase_if(groups, [&](const comm::ProcessGroup* group) {
      return group == nullptr || !known.insert(group).second;
    });
  }
}

uint64_t CollectiveMeter::MovedOn(size_t axis) const {
  uint64_t bytes = 0;
  for (const comm::ProcessGroup* const group : axes_[axis].second) bytes += group->bytes_moved();
  return bytes;
}

absl::Status CollectiveMeter::BeforeStep(const StepRecord&, absl::Time) {
  for (size_t axis = 0; axis < axes_.size(); ++axis) before_[axis] = MovedOn(axis);
  return absl::OkStatus();
}

absl::Status CollectiveMeter::AfterStep(StepRecord&, absl::Time) {
  for (size_t axis = 0; axis < axes_.size(); ++axis) sums_[axis] += MovedOn(axis) - before_[axis];
  ++steps_;
  return absl::OkStatus();
}

std::vector<uint64_t> CollectiveMeter::bytes_per_step() const {
  std::vector<uint64_t> mean;
  for (const uint64_t sum : sums_) mean.push_back(sum / std::max<uint64_t>(1, steps_));
  return mean;
}

}  // namespace tandem::report
