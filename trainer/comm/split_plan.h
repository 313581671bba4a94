// Agreements about sizes that groups reach through a collective: the ranks after a Split, and the
// element counts of the two ends of an AllToAllV pair. All implementations share them.
// Thread rule: that of the group.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

struct SplitPlan {
  int rank = 0;  // this rank's place in the new group
  int size = 1;
  std::vector<int> members;  // ranks of the old group, by their places in the new one
};

// Returns the place of this rank among the ranks of its color, ordered by (key, rank). Collective
// over `group`.
absl::StatusOr<SplitPlan> PlanSplit(ProcessGroup& group, int color, int key, absl::Time deadline);

// Returns Internal, naming both ranks, unless `sent` equals `expected`.
absl::Status CheckPairCount(int sender, int64_t sent, int receiver, int64_t expected);

}  // namespace tandem::comm
