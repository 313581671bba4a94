#include "trainer/cli/process/failure.h"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/utf8.h"
#include "trainer/cli/process/exit_code.h"
#include "trainer/cli/process/supervisor.h"

namespace tandem::cli {

namespace {

// A stop explains that peers go, but not an error that this process found itself.
bool IsExplainedByStop(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

// Kubernetes shows this file's text as the reason of a container that has ended. It keeps 4096
// bytes.
void LeaveTerminationMessage(const std::string& text) {
  const int fd = open("/dev/termination-log", O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) return;  // not in a pod
  [[maybe_unused]] const ssize_t written =
      write(fd, text.data(), std::min<size_t>(text.size(), 4096));
  close(fd);
}

}  // namespace

void PrintFailure(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  LeaveTerminationMessage(text);
}

std::string RoleLine(const std::string& role, const std::string& text) {
  return absl::StrCat("[", role, absl::FormatTime(" %H:%M:%S", absl::Now(), absl::LocalTimeZone()),
                      "] ", text, "\n");
}

std::optional<std::string> TextOfRoleLine(const std::string& role, const std::string& line) {
  const size_t end = line.find("] ");
  if (end == std::string::npos || line.rfind(absl::StrCat("[", role, " "), 0) != 0)
    return std::nullopt;
  return line.substr(end + 2);
}

int ReportError(const absl::Status& status) {
  const std::string message = PrintableLines(std::string(status.message()));
  if (SignalReceived() && status.code() == absl::StatusCode::kCancelled) {
    PrintFailure(message + "\n");
    return 128 + ReceivedSignal();
  }
  // Several messages are printed one below another.
  const bool several = message.find('\n') != std::string::npos;
  PrintFailure(absl::StrCat(several ? "errors:\n" : kOwnFailure, message, "\n"));
  return ExitCodeOf(status);
}

int ReportRoleError(const std::string& name, const absl::Status& status, bool told, int signal) {
  const bool stopped = signal != 0 && (told || IsExplainedByStop(status));
  const std::string text = absl::StrCat(told || stopped ? kToldFailure : kOwnFailure,
                                        PrintableLines(std::string(status.message())));
  PrintFailure(RoleLine(name, text));
  return stopped ? 128 + signal : ExitCodeOf(status);
}

}  // namespace tandem::cli
