// Texts that one rank of a group tells the others.
// Thread rule: that of the group.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// Returns the text of rank `root`. `args` has the tag and the timeout. Collective.
// REQUIRES: the group's arrays lie in host memory.
absl::StatusOr<std::string> BroadcastText(ProcessGroup& group, absl::string_view mine, int root,
                                          const CollectiveArgs& args);
// Returns the text of the lowest rank that has one; "" if no rank has. Collective.
// REQUIRES: the group's arrays lie in host memory.
absl::StatusOr<std::string> FirstText(ProcessGroup& group, absl::string_view mine,
                                      const CollectiveArgs& args);

}  // namespace tandem::comm
