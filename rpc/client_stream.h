// The client's end of a bidirectional call, whatever carries the messages: gRPC (Channel) or shared memory (SharedStreams).
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/memory/buffer.h"
#include "rpc/future.h"
#include "rpc/payload.h"

namespace tandem::rpc {

// One bidirectional call: Send messages, each answered by one reply, in order; futures of replies that come one upon another may complete
// on two threads at once. At most `window` messages are on their way at a time; more are queued. The stream breaks as a whole: then every
// unanswered Send completes with the reason.
class ClientStream {
 public:
  virtual ~ClientStream() = default;  // cancels
  virtual Future<Payload> Send(Payload message) = 0;
  // Memory for a part of a message that Send, if it can, sends from where it is.
  virtual std::shared_ptr<Buffer> Allocate(size_t num_bytes) { return Buffer::Allocate(num_bytes); }
  // Whether what Send sends now stays in memory that both ends map, where nothing on the way can damage it.
  virtual bool shares_memory() const { return false; }
  virtual bool broken() const = 0;
};

}  // namespace tandem::rpc
