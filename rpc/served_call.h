// A message being served, and the handler's Reply. Answered once; a dropped Reply answers
// Cancelled. Shared by the server's transports. Private to rpc/.
// Thread rule: Answer from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"
#include "rpc/handler.h"
#include "rpc/payload.h"

namespace tandem::rpc {

// The transport owns it until the transport is done. The holder of a Reply also owns it, and may
// live much longer.
class ServedCall {
 public:
  virtual ~ServedCall() = default;
  virtual void Answer(absl::StatusOr<Payload> answer) = 0;
  // Like Reply::Allocate.
  virtual std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return Buffer::Allocate(num_bytes); }
};

Reply MakeReply(std::shared_ptr<ServedCall> call);

}  // namespace tandem::rpc
