// A gRPC server on one listening address: byte-level handlers under the full names of `proto/`, the
// standard health service and reflection. Other rooms register handlers here, so no file outside
// `rpc/` needs gRPC.
// Thread rule: register before Start. Handlers run on gRPC's threads and must not block: they reply
// now or later.
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
  UNARY,  // one request, one reply
  // Bidirectional: every request message gets one reply message, in order; an error reply ends the
  // stream. The handler may hold a few messages of a stream before it answers the first. A client
  // that takes no replies is not read any further.
  STREAM,
};

struct ServerOptions {
  // Bytes of requests that handlers may hold, over all calls except shared memory. A further
  // request gets ResourceExhausted. 0: half of MachineMemory.
  size_t max_request_bytes = 0;
};

class Server {
 public:
  // Calls and streams that do not show `credentials` end with Unauthenticated before any message is
  // read. The health service and reflection are open to everybody.
  explicit Server(Credentials credentials = {}, ServerOptions options = {});
  ~Server();  // Shutdown without grace
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `service` is a full protobuf service name ("tandem.EmbeddingService"), `method` one of its
  // methods.
  void Handle(const std::string& service, const std::string& method, MethodKind kind,
              Handler handler);
  // Binds `listen` ("host:port"; port 0 picks a free one) and serves. Unavailable if the port is
  // taken, with the address.
  absl::Status Start(const std::string& listen);
  // Lets clients of the same host and user open streams through shared memory (SharedStreams).
  // Unavailable if another server of this host uses the same address.
  // REQUIRES: started.
  absl::Status ServeSharedMemory(SharedMemoryOptions options = {});
  const Credentials& credentials() const;
  // "host:port" with the real port.
  // REQUIRES: started.
  std::string address() const;
  // Makes the health service say SERVING for the name kReady. For the empty name, which means that
  // the process lives, the health service has said so since Start.
  // REQUIRES: started.
  void SetReady();
  static constexpr char kReady[] = "ready";
  // Stops accepting, lets running calls finish for `grace_seconds`, then cancels them.
  // REQUIRES: not called from a handler.
  void Shutdown(double grace_seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::rpc
