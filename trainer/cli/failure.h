// How a command says why it ends, and with which code. Thread rule: any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "trainer/cli/signals.h"

namespace tandem::cli {

// Prints "error: ..." and returns the exit code. A stop by a signal is told as such, with 128 + n.
int ReportError(const absl::Status& status);
// The same for a role of a job: "[trainer-1] error: ..." for its own failure, "[trainer-1] ended: ..." for one that the
// job told it about, and for a stop by `signal`, with 128 + n. The supervisor of `launch` reads these lines (supervisor.h).
int ReportRoleError(const std::string& name, const absl::Status& status, bool told, int signal = ReceivedSignal());

}  // namespace tandem::cli
