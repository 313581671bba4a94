// trace.json: the spans of all roles as a Chrome trace (chrome://tracing, Perfetto). A role is a process there; its threads
// are rows, and so are calls that overlap (a pull on its way while another is), as many rows as they need. Arrows lead from a
// trainer's call to what was done for it elsewhere.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/trace.pb.h"

namespace tandem::report {

// Replaces `path` when everything is on disk. Times are those of one clock; the earliest becomes 0.
absl::Status WriteTraceFile(const std::string& path, std::vector<RoleTrace> traces);

}  // namespace tandem::report
