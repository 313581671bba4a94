// A process that the system gives too few resources says what ran out and how much it needed. It
// exits with 75 instead of a signal or a source path.
// Thread rule: the main thread, before other threads run.
#pragma once

#include "absl/status/status.h"

namespace tandem::cli {

// Opens /dev/null for a closed standard stream, because the next file would take its number. Raises
// the limit of open files to the allowed maximum. Lets a lack of memory or threads end the process
// with a message.
void PrepareLimits();

// ResourceExhausted if the limits on open files or address space are too low for a role of a job.
absl::Status CheckLimits();

}  // namespace tandem::cli
