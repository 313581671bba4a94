// How the spans of all trainers come to rank 0, on its clock. Ranks on rank 0's machine share its clock; the clock of any
// other machine is asked for a few times, and the quickest answer tells the difference.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "proto/trace.pb.h"
#include "trainer/comm/process_group.h"

namespace tandem::report {

// Collective. Rank 0 gets all traces in rank order, the others get none. `clock` is that of `mine`, in nanoseconds.
absl::StatusOr<std::vector<RoleTrace>> GatherTraces(comm::ProcessGroup& group, const RoleTrace& mine, absl::Time deadline,
                                                    const std::function<int64_t()>& clock = MonotonicNanoseconds);

}  // namespace tandem::report
