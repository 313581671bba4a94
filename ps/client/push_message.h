// One message of a push: gathers ids and gradients, rounds gradients to the wire format, and adds
// the checksum.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "proto/embedding.pb.h"
#include "ps/client/message_plan.h"
#include "ps/client/resending_stream.h"
#include "ps/client/residuals.h"
#include "ps/client/row_client.h"
#include "rpc/payload.h"

namespace tandem::ps {

// Encodes a message for `stream`. `request` has the header, the sequences, the step and the slice.
rpc::Payload EncodePush(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PushSegment>& segments, PushRequest request,
                        Residuals& residuals, ResendingStream& stream);

}  // namespace tandem::ps
