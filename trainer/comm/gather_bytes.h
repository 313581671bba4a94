// Bytes of any length, everybody's, at rank 0. Thread rule: the group's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// Collective. Rank 0 gets the bytes of all in rank order, the others get none. The group's arrays must lie in the memory of the host.
absl::StatusOr<std::vector<std::string>> GatherBytes(ProcessGroup& group, absl::string_view mine, uint64_t tag, absl::Time deadline);

}  // namespace tandem::comm
