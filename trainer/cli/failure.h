// How a command says why it ends, and with which code. Thread rule: any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "trainer/cli/signals.h"

namespace tandem::cli {

// A line of a role for stderr, its end included: "[trainer-1 14:05:09] TEXT", with the machine's time. Where trainers and servers write
// into one terminal or log, the reader sees who came first.
std::string RoleLine(const std::string& role, const std::string& text);
// What follows the bracket in a line of `role`; nothing for other lines.
std::optional<std::string> TextOfRoleLine(const std::string& role, const std::string& line);

// Prints "error: ..." and returns the exit code. A stop by a signal is told as such, with 128 + n.
int ReportError(const absl::Status& status);
// The same for a role of a job: "error: ..." in a RoleLine for its own failure, "ended: ..." for one that the
// job told it about, and for a stop by `signal`, with 128 + n. The supervisor of `launch` reads these lines (supervisor.h).
int ReportRoleError(const std::string& name, const absl::Status& status, bool told, int signal = ReceivedSignal());

}  // namespace tandem::cli
