// The parameters of the whole model, of which a rank of a pipeline has those of its stages alone.
// Thread rule: the step's thread.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"
#include "trainer/optim/dense_state.h"

namespace tandem::loop {

// Returns the parameters of all stages, each once, in the order of `stages` and of their sets.
// Collective over `stages`, whose arrays lie in the host's memory.
absl::StatusOr<std::vector<optim::LogicalParameter>> WholeModel(const ParameterSet& here,
                                                                comm::ProcessGroup& stages,
                                                                absl::Time deadline);

}  // namespace tandem::loop
