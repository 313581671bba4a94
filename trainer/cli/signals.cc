#include "trainer/cli/signals.h"

#include <atomic>
#include <csignal>

#include "absl/strings/str_cat.h"

namespace tandem::cli {

namespace {
std::atomic<int> received = 0;  // read by threads that the signal did not interrupt
static_assert(std::atomic<int>::is_always_lock_free);
void Note(int signal) {
  int none = 0;
  received.compare_exchange_strong(none, signal);
}
}  // namespace

void CatchSignals() {
  struct sigaction action {};
  action.sa_handler = Note;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

int ReceivedSignal() { return received; }

absl::Status SignalStatus() {
  if (received == 0) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped by ", received == SIGINT ? "SIGINT" : "SIGTERM"));
}

absl::Status StoppedStatus(int64_t steps) {
  const std::string by = received == 0 ? "stopped by a signal to another trainer" : std::string(SignalStatus().message());
  return absl::CancelledError(absl::StrCat(by, " after step ", steps, "; a checkpoint is written: --resume goes on"));
}

int WithSignal(int signal, int code) { return signal == 0 ? code : 128 + signal; }

}  // namespace tandem::cli
