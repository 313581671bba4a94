// A message being served, and the handler's Reply. Answered once; a dropped Reply answers
// Cancelled. Shared by the server's transports. Private to rpc/.
// Thread rule: Answer from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"
#include "rpc/payload.h"
#include "rpc/handler.h"

namespace tandem::rpc {

// Owned by the transport until the transport is done, and by the holder of a Reply, which may live
// much longer.
class ServedCall {
 public:
  virtual ~ServedCall() = default;
  virtual void Answer(absl::StatusOr<Payload> answer) = 0;
  // Like Reply::Allocate.
  virtual std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return Buffer::Allocate(num_bytes); }
};

Reply MakeReply(std::shared_ptr<ServedCall> call);

}  // namespace tandem::rpc
