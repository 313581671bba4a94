// How the two ends of a shared-memory stream come together: the client connects to the local socket that the server's address
// names, shows its credentials and says which method it wants; the server answers with the descriptor of a fresh segment, or why not.
// After that the socket carries one byte to wake a sleeping end, and closing it ends the stream. Private to rpc/.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "rpc/credentials.h"

namespace tandem::rpc {

inline constexpr uint32_t kSharedMagic = 0x544e444d;
inline constexpr uint32_t kSharedVersion = 2;
inline constexpr size_t kMaxPacketBytes = 1024;

// Each packet begins with one of these; a text follows: the full name of the method, or the reason of a refusal.
struct SharedHello {
  uint32_t magic = kSharedMagic, version = kSharedVersion;
  char shown[Credentials::kShownBytes + 1] = {};  // zeros: none
};
struct SharedWelcome {
  uint32_t magic = kSharedMagic, version = kSharedVersion;
  uint64_t arena_bytes = 0;  // 0: refused
  uint64_t code = 0;         // the status code of a refusal
};

// Of the server that listens on `address`, as its clients write it.
inline std::string SharedSocketName(const std::string& address) { return absl::StrCat("tandem-streams/", address); }

}  // namespace tandem::rpc
