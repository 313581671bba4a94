// Brings the spans of all trainers to rank 0, on its clock. Ranks on rank 0's machine share its
// clock. The clock of another machine is asked for a few times, and the quickest answer gives the
// difference.
// Thread rule: that of the group.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "trainer/comm/process_group.h"

namespace tandem {
class RoleTrace;  // proto/trace.pb.h
}

namespace tandem::report {

// Collective. Rank 0 gets all traces in rank order; other ranks get none. `clock` is the clock of
// `mine`, in nanoseconds.
absl::StatusOr<std::vector<RoleTrace>> GatherTraces(
    comm::ProcessGroup& group, const RoleTrace& mine, absl::Time deadline,
    const std::function<int64_t()>& clock = MonotonicNanoseconds);

}  // namespace tandem::report
