// The exit codes of a process, which scripts may rely on: 0 ok, 2 configuration, 3 data, 4
// checkpoint, 70 the model diverged, 75 temporary, 128 + n for signal n, 1 for anything else.
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"

namespace tandem::cli {

int ExitCodeOf(const absl::Status& status);
// True if a job, file or checkpoint was at fault.
inline bool IsRefusal(int exit_code) { return exit_code >= 2 && exit_code <= 4; }

}  // namespace tandem::cli
