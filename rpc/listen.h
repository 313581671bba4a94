// An address to listen on, had before the server that will: gRPC does not say why it cannot listen, and logs where users do not want it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

// While it lives, the system gives the port to nobody who asks for any free one, a server of whatever process that asks for this very
// one can have it, and who connects before that is refused.
class HeldAddress {
 public:
  // `listen` is "host:port", port 0 picks a free one. Unavailable if somebody listens there, InvalidArgument for another reason; both
  // name it.
  static absl::StatusOr<std::unique_ptr<HeldAddress>> Hold(const std::string& listen);
  // The same for a process that starts the server: whoever else asks for the port alone meanwhile has Unavailable. Of two that only
  // bind the port both would have it, and their servers' clients would meet the same server.
  static absl::StatusOr<std::unique_ptr<HeldAddress>> HoldAlone(const std::string& listen);
  ~HeldAddress();
  HeldAddress(const HeldAddress&) = delete;
  HeldAddress& operator=(const HeldAddress&) = delete;

  // "host:port" with the real port.
  const std::string& text() const { return text_; }

 private:
  explicit HeldAddress(int socket) : socket_(socket) {}

  const int socket_;  // bound, not listening
  int claim_ = -1;    // of the one who has it alone
  std::string text_;
};

}  // namespace tandem::rpc
