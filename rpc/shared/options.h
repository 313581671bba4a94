// Options of a server's streams through shared memory.
// Thread rule: a value.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace tandem::rpc {

struct SharedMemoryOptions {
  // The most memory for messages of one stream in one direction. Memory is taken when needed and
  // kept as long as the stream lives.
  size_t arena_bytes = size_t{128} << 20;  // a multiple of 4,096
  // How long a connected client may take to send its hello.
  absl::Duration hello_timeout = absl::Seconds(5);
};

}  // namespace tandem::rpc
