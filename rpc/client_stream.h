// The client's end of a bidirectional call, over gRPC (Channel) or shared memory (SharedStreams).
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/memory/buffer.h"
#include "rpc/future.h"
#include "rpc/payload.h"

namespace tandem::rpc {

// One bidirectional call. Each message of Send gets one reply, in order. Futures of consecutive
// replies may complete on two threads at once. At most `window` messages are in flight; Send queues
// further messages. When the stream breaks, every unanswered Send completes with the reason.
class ClientStream {
 public:
  virtual ~ClientStream() = default;  // cancels
  virtual Future<Payload> Send(Payload message) = 0;
  // Memory for a part of a message. Send does not copy it if the transport can avoid the copy.
  virtual std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return Buffer::Allocate(num_bytes); }
  virtual bool broken() const = 0;
};

}  // namespace tandem::rpc
