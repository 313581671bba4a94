// One message of a pull, and its answer: rows, and for callers that keep rows their versions.
// Thread rule: pure functions; answers of several messages may be taken at the same time.
// Invariant: an answer of the wrong size writes nothing.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"
#include "ps/client/message_plan.h"
#include "ps/client/row_client.h"
#include "rpc/payload.h"

namespace tandem::ps {

// Returns the message. `request` has the header, the step and `create`.
rpc::Payload EncodePull(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PullSegment>& segments, PullRequest request);
// Writes the answer to the segments' rows and versions.
absl::Status TakePulled(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PullSegment>& segments, rpc::Payload answer);

}  // namespace tandem::ps
