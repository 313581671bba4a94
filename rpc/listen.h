// Whether a server could listen on an address, asked without one: gRPC does not say why it cannot, and logs where users do not want it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

// Listens on `listen` ("host:port", port 0 picks a free one) for a moment. Returns "host:port" with the real port, which somebody else
// may take at any time. Unavailable if the port is taken, InvalidArgument for another reason; both name it.
absl::StatusOr<std::string> TryListen(const std::string& listen);

}  // namespace tandem::rpc
