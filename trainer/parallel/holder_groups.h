// The groups of tensor-parallel ranks that hold the same elements of a parameter
// (GradientRecord::holders): all ranks for a whole parameter, neighbours for copies of heads.
// Thread rule: that of ProcessGroup.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter.h"
#include "trainer/comm/process_group.h"

namespace tandem::parallel {

class HolderGroups {
 public:
  // Makes the groups that the parameters' records need, out of `tp`, which outlives them.
  // Collective over `tp`. InvalidArgument names a parameter without a record, if `tp` has several
  // ranks.
  static absl::StatusOr<std::unique_ptr<HolderGroups>> Create(const ParameterSet& parameters,
                                                              comm::ProcessGroup* tp,
                                                              absl::Time deadline);

  // This rank's group. REQUIRES: a parameter has so many holders.
  comm::ProcessGroup& Of(int holders) const { return *groups_.at(holders); }
  // By number of holders, from 2 on.
  const std::map<int, comm::ProcessGroup*>& groups() const { return groups_; }

 private:
  std::map<int, comm::ProcessGroup*> groups_;
  std::vector<std::unique_ptr<comm::ProcessGroup>> owned_;
};

}  // namespace tandem::parallel
