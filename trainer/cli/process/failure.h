// How a command reports why it ends, and with which exit code.
// Thread rule: any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/cli/process/signals.h"

namespace tandem::cli {

// A role's line for stderr, with its line end: "[trainer-1 14:05:09] TEXT", in the machine's local
// time. If trainers and servers write into one terminal or log, the reader sees the order of
// events.
std::string RoleLine(const std::string& role, const std::string& text);
// Returns the text behind the bracket in a line of `role`; nothing for other lines.
std::optional<std::string> TextOfRoleLine(const std::string& role, const std::string& line);

// Prints the reason why this process ends, also where Kubernetes looks for it
// (/dev/termination-log). `text` ends with a line end.
void PrintFailure(const std::string& text);

// Prints "error: ..." and returns the exit code. Reports a stop by a signal as a stop, with 128 +
// n.
int ReportError(const absl::Status& status);
// Like ReportError, for a role of a job, in a RoleLine. Prints "error: ..." for the role's own
// failure. Prints "ended: ..." for a failure that the job reported, and for a stop by `signal`,
// with 128 + n. The supervisor of `launch` reads these lines (supervisor.h).
int ReportRoleError(const std::string& name, const absl::Status& status, bool told,
                    int signal = ReceivedSignal());

}  // namespace tandem::cli
