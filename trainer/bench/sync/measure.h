// Measures one point of `tandem bench sync` in processes of its own.
// Thread rule: the main thread of the command.
#pragma once

#include <optional>

#include "trainer/bench/sync/result.h"

namespace tandem::bench {

// Empty if the measurement failed: then the user has been told, and `exit_code` is this command's.
// A member that somebody killed makes that 75.
std::optional<SyncResult> Measure(const SyncPoint& point, int* exit_code);

}  // namespace tandem::bench
