// Gathers byte strings of any length from all ranks at rank 0.
// Thread rule: that of the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// Collective. Rank 0 gets the bytes of all ranks in rank order; other ranks get none.
// REQUIRES: the group's arrays lie in host memory.
absl::StatusOr<std::vector<std::string>> GatherBytes(ProcessGroup& group, absl::string_view mine,
                                                     uint64_t tag, absl::Time deadline);

}  // namespace tandem::comm
