// What a process does when the system gives it too little: it says what ran out and how much was wanted, and ends with 75 instead of
// a signal or a source path. Thread rule: the main thread, before other threads run.
#pragma once

#include "absl/status/status.h"

namespace tandem::cli {

// Opens /dev/null for a standard stream that is closed, or the next file would take its number; asks for as many open files as the
// process may have; and lets memory and threads that run out end the process with a message.
void PrepareLimits();

// ResourceExhausted if so few files may be open, or so few addresses used, that a role of a job cannot run.
absl::Status CheckLimits();

}  // namespace tandem::cli
