#include "trainer/cli/failure.h"

#include <cstdio>

#include "trainer/cli/exit_code.h"
#include "trainer/cli/supervisor.h"

namespace tandem::cli {

int ReportError(const absl::Status& status) {
  const std::string message(status.message());
  const bool several = message.find('\n') != std::string::npos;  // they stand below one another
  std::fprintf(stderr, "%s%s\n", several ? "errors:\n" : kOwnFailure, message.c_str());
  return WithSignal(ReceivedSignal(), ExitCodeOf(status));
}

int ReportRoleError(const std::string& name, const absl::Status& status, bool told, int signal) {
  std::fprintf(stderr, "[%s] %s%s\n", name.c_str(), told || signal != 0 ? kToldFailure : kOwnFailure,
               std::string(status.message()).c_str());
  return WithSignal(signal, ExitCodeOf(status));
}

}  // namespace tandem::cli
