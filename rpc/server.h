// A gRPC server on one listening address: byte-level handlers under the full names of `proto/`, the standard health
// service and reflection. The only file outside `rpc/` that needs gRPC is none: other rooms register handlers here.
// Thread rule: register before Start; handlers run on gRPC's threads and must not block: they reply now or later.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rpc/credentials.h"
#include "rpc/handler.h"
#include "rpc/shared/options.h"

namespace tandem::rpc {

enum class MethodKind {
  UNARY,   // one request, one reply
  STREAM,  // bidirectional: every request message gets one reply message, in order; an error reply ends the stream.
           // A stream hands a few messages to the handler, one after the other, before the first is answered; a client that takes
           // no replies is read no more.
};

struct ServerOptions {
  // Of requests that handlers hold, over all calls but those through shared memory; one more is answered ResourceExhausted. 0: half of the
  // machine's memory.
  size_t max_request_bytes = 0;
};

class Server {
 public:
  // Calls and streams that do not show `credentials` end with Unauthenticated before any of their messages is read. The health service
  // and reflection are open to everybody.
  explicit Server(Credentials credentials = {}, ServerOptions options = {});
  ~Server();  // Shutdown with no grace
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `service` is a full protobuf service name ("tandem.EmbeddingService"), `method` one of its methods.
  void Handle(const std::string& service, const std::string& method, MethodKind kind, Handler handler);
  // Binds `listen` ("host:port", port 0 picks a free one) and serves. Unavailable if the port is taken, naming it.
  absl::Status Start(const std::string& listen);
  // From now on clients of the same host and user may open streams through shared memory (SharedStreams). Unavailable if another
  // server of this host goes by the same address. REQUIRES: started.
  absl::Status ServeSharedMemory(SharedMemoryOptions options = {});
  const Credentials& credentials() const;
  // "host:port" with the real port. REQUIRES: started.
  std::string address() const;
  // Stops accepting, lets running calls finish for `grace_seconds`, then cancels them. REQUIRES: not from a handler.
  void Shutdown(double grace_seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::rpc
