// Addresses as users write them: HOST:PORT. HOST is a name, an IPv4 address, or an IPv6 address in
// brackets. Checked early, before anything waits for an address.
// Thread rule: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::rpc {

struct Address {
  std::string host;  // without brackets
  uint16_t port = 0;

  // True for 0.0.0.0 and ::, where a process listens but nobody can call.
  bool stands_for_all() const { return host == "0.0.0.0" || host == "::"; }
};

// InvalidArgument says what was found and which form is wanted. Does not look the name up, because
// a service may get its name later.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Ok if other processes can reach the address: a valid host and a port.
absl::Status CheckTarget(const std::string& text);

}  // namespace tandem::rpc
