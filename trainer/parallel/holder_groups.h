// The groups of ranks that hold the same elements of a parameter (GradientRecord): tensor-parallel
// ranks, all of them for a whole parameter and neighbours for copies of heads; and a pipeline's
// first and last stage for what both use.
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
  // Makes the groups that the parameters' records need, out of `tp` and `pp`, which outlive them.
  // Collective over both. InvalidArgument names a parameter without a record, if `tp` has several
  // ranks.
  static absl::StatusOr<std::unique_ptr<HolderGroups>> Create(const ParameterSet& parameters,
                                                              comm::ProcessGroup* tp,
                                                              comm::ProcessGroup* pp,
                                                              absl::Time deadline);

  // This rank's group. REQUIRES: a parameter has so many holders.
  comm::ProcessGroup& Of(int holders) const { return *groups_.at(holders); }
  // By number of holders, from 2 on.
  const std::map<int, comm::ProcessGroup*>& groups() const { return groups_; }
  // The first and the last stage. Null if no parameter here is tied_over_pp.
  comm::ProcessGroup* tied() const { return tied_; }

 private:
  absl::Status MakeCopies(const ParameterSet& parameters, comm::ProcessGroup* tp,
                          absl::Time deadline);
  absl::Status MakeTied(const ParameterSet& parameters, comm::ProcessGroup* pp,
                        absl::Time deadline);

  std::map<int, comm::ProcessGroup*> groups_;
  comm::ProcessGroup* tied_ = nullptr;
  std::vector<std::unique_ptr<comm::ProcessGroup>> owned_;
};

}  // namespace tandem::parallel
