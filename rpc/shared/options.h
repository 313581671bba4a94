// How a server offers streams through shared memory. Thread rule: a value.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace tandem::rpc {

struct SharedMemoryOptions {
  // Room for the messages of one stream in one direction. Memory is taken as it is needed; at most so much, as long as the stream
  // lives.
  size_t arena_bytes = size_t{128} << 20;  // a multiple of 4,096
  // For a client that has connected to say what it wants.
  absl::Duration hello_timeout = absl::Seconds(5);
};

}  // namespace tandem::rpc
