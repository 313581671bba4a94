// What a process ends with, as the contract promises: 0 ok, 2 configuration, 3 data, 4 checkpoint, 75 temporary, 128 + n
// for signal n, 1 for anything else.
#pragma once

#include "absl/status/status.h"

namespace tandem::cli {

int ExitCodeOf(const absl::Status& status);

}  // namespace tandem::cli
