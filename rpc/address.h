// Addresses as users write them: HOST:PORT, HOST a name, an IPv4 address or an IPv6 address in brackets. Checked before anything waits
// for them. Thread rule: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

struct Address {
  std::string host;  // without brackets
  uint16_t port = 0;
};

// InvalidArgument says what was found and which form is wanted. Does not ask whether a name is known: a service may get one later.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Ok for an address that others can be reached at: a host that is one, and a port.
absl::Status CheckTarget(const std::string& text);

}  // namespace tandem::rpc
