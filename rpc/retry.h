// When to send again and how long to wait before: exponential back-off with jitter, so that the clients of a restarted
// server do not come back all at once. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::rpc {

// Only Unavailable: the request may not have arrived, and the peer may come back.
bool IsRetryable(const absl::Status& status);

// 50 ms doubled per attempt (0, 1, ...) up to 2 s, times a factor in [0.5, 1) drawn from `random_bits`.
absl::Duration BackoffDelay(int attempt, uint32_t random_bits);

}  // namespace tandem::rpc
