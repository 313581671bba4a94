// An address of this machine.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <netinet/in.h>

namespace tandem::support {

inline sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace tandem::support
