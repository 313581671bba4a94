// How the two ends of a shared-memory stream meet. The client connects to the local socket named
// after the server's address, shows its credentials and names a method. The server answers with the
// descriptor of a fresh segment, or with a refusal. Later the socket carries one byte to wake a
// sleeping end; closing the socket ends the stream. Private to rpc/.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "rpc/credentials.h"

namespace tandem::rpc {

inline constexpr uint32_t kSharedMagic = 0x544e444d;
inline constexpr uint32_t kSharedVersion = 2;
inline constexpr size_t kMaxPacketBytes = 1024;

// Each packet begins with one of these structs. A text follows: the full method name, or the reason
// of a refusal.
struct SharedHello {
  uint32_t magic = kSharedMagic, version = kSharedVersion;
  char shown[Credentials::kShownBytes + 1] = {};  // zeros: none
};
struct SharedWelcome {
  uint32_t magic = kSharedMagic, version = kSharedVersion;
  uint64_t arena_bytes = 0;  // 0: refused
  uint64_t code = 0;         // the status code of a refusal
};

// The socket name of the server that listens on `address`, in the form that its clients use.
inline std::string SharedSocketName(const std::string& address) {
  return absl::StrCat("tandem-streams/", address);
}

}  // namespace tandem::rpc
