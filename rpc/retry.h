// Decides which errors to retry, and how long to wait. Exponential back-off with jitter spreads out
// the clients of a restarted server.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::rpc {

// True for Unavailable only: the request may not have arrived, and the peer may come back.
bool IsRetryable(const absl::Status& status);

// 50 ms, doubled per attempt (0, 1, ...) up to 2 s, times a factor in [0.5, 1) from `random_bits`.
absl::Duration BackoffDelay(int attempt, uint32_t random_bits);

}  // namespace tandem::rpc
