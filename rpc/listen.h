// Reserves an address before the server listens. gRPC does not say why it cannot listen, and logs
// where users do not want it.
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

// While a HeldAddress lives, the system does not hand its port out as a free port. A server of any
// process that asks for exactly this port can still bind it. Connections are refused until a server
// listens.
class HeldAddress {
 public:
  // Reserves `listen` ("host:port"; port 0 picks a free one). Unavailable if somebody listens
  // there, InvalidArgument for other reasons. Both errors name the address.
  static absl::StatusOr<std::unique_ptr<HeldAddress>> Hold(const std::string& listen);
  // Like Hold, for a process that starts the server. Any other HoldAlone of the port meanwhile gets
  // Unavailable. With Hold alone, two processes could both bind the port, and clients of both would
  // reach the same server.
  static absl::StatusOr<std::unique_ptr<HeldAddress>> HoldAlone(const std::string& listen);
  ~HeldAddress();
  HeldAddress(const HeldAddress&) = delete;
  HeldAddress& operator=(const HeldAddress&) = delete;

  // "host:port" with the real port.
  const std::string& text() const { return text_; }

 private:
  explicit HeldAddress(int socket) : socket_(socket) {}

  const int socket_;  // bound, not listening
  int claim_ = -1;    // the lock of HoldAlone; -1: none
  std::string text_;
};

}  // namespace tandem::rpc
