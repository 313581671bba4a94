// A gRPC server on one listening address: byte-level handlers under the full names of `proto/`, the standard health
// service and reflection. The only file outside `rpc/` that needs gRPC is none: other rooms register handlers here.
// Thread rule: register before Start; handlers run on gRPC's threads and must not block: they reply now or later.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/payload.h"

namespace tandem::rpc {

// Completes one message exactly once, from any thread. Dropping it unanswered replies Cancelled.
using Reply = std::function<void(absl::StatusOr<Payload>)>;
using Handler = std::function<void(Payload request, Reply reply)>;

enum class MethodKind {
  UNARY,   // one request, one reply
  STREAM,  // bidirectional: every request message gets one reply message, in order; an error reply ends the stream.
           // The next message is read only when the reply to the last one has been handed over: flow control.
};

class Server {
 public:
  Server();
  ~Server();  // Shutdown with no grace
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `service` is a full protobuf service name ("tandem.EmbeddingService"), `method` one of its methods.
  void Handle(const std::string& service, const std::string& method, MethodKind kind, Handler handler);
  // Binds `listen` ("host:port", port 0 picks a free one) and serves. Unavailable if the port is taken, naming it.
  absl::Status Start(const std::string& listen);
  // "host:port" with the real port. REQUIRES: started.
  std::string address() const;
  // Stops accepting, lets running calls finish for `grace_seconds`, then cancels them. REQUIRES: not from a handler.
  void Shutdown(double grace_seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::rpc
