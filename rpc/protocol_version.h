// The version of all messages between processes (proto/). Both ends must have the same.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::rpc {

// Raise the version when an old process could misread a message.
// 2: a push carries no commit, and always a checksum.
inline constexpr uint32_t kProtocolVersion = 2;

// FailedPrecondition unless `version`, of a request's header, is this process's. `reader` names the
// process for the user: "this server".
inline absl::Status CheckProtocolVersion(uint32_t version, const char* reader) {
  if (version == kProtocolVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("protocol version ", version, ", ", reader, " speaks ", kProtocolVersion));
}

}  // namespace tandem::rpc
