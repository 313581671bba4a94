// A message being served, and the reply that a handler holds for it: given once or, dropped, Cancelled. What the server's
// transports share. Private to rpc/. Thread rule: Answer from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"
#include "rpc/payload.h"
#include "rpc/handler.h"

namespace tandem::rpc {

// It belongs to its transport until that is done with it and to whoever holds a Reply, which may come much later.
class ServedCall {
 public:
  virtual ~ServedCall() = default;
  virtual void Answer(absl::StatusOr<Payload> answer) = 0;
  // As Reply::Allocate.
  virtual std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return Buffer::Allocate(num_bytes); }
};

Reply MakeReply(std::shared_ptr<ServedCall> call);

}  // namespace tandem::rpc
