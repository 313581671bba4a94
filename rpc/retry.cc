#include "rpc/retry.h"

#include <algorithm>
#include <cmath>

namespace tandem::rpc {

bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status); }

absl::Duration BackoffDelay(int attempt, uint32_t random_bits) {
  const double longest = std::min(0.05 * std::exp2(std::min(attempt, 30)), 2.0);
  return absl::Seconds(longest * (0.5 + 0.5 * (random_bits * 0x1p-32)));
}

}  // namespace tandem::rpc
