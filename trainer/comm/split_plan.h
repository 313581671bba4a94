// The agreements about sizes that groups make through a collective: who ends up where after a Split, and whether the
// two ends of an AllToAllV pair mean the same number of elements. Shared by all implementations.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

struct SplitPlan {
  int rank = 0;  // this rank's place in the new group
  int size = 1;
};

// Collective over `group`: the ranks with this rank's color, ordered by (key, rank).
absl::StatusOr<SplitPlan> PlanSplit(ProcessGroup& group, int color, int key, absl::Time deadline);

// Internal, naming both, unless what one rank sends is what the other one expects.
absl::Status CheckPairCount(int sender, int64_t sent, int receiver, int64_t expected);

}  // namespace tandem::comm
