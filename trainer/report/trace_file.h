// trace.json: the spans of all roles as a Chrome trace (chrome://tracing, Perfetto). A role is a
// process there and its threads are rows. Overlapping calls (such as two pulls in flight) get as
// many rows as they need. Arrows lead from a trainer's call to the work done for it elsewhere.
// Thread rule: free functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {
class RoleTrace;  // proto/trace.pb.h
}

namespace tandem::report {

// Replaces `path` once everything is on disk. All times are of one clock; the earliest becomes 0.
absl::Status WriteTraceFile(const std::string& path, std::vector<RoleTrace> traces);

}  // namespace tandem::report
