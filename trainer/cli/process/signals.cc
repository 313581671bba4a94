#include "trainer/cli/process/signals.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tandem::cli {

namespace {

std::atomic<int> received = 0;
std::atomic<bool> noting = false;  // if false, a stop ends the process
sigset_t before;                   // the signals that the process had blocked when it began

// Signals that a thread's own instruction raises, and signals of sampling profilers, whose handlers
// must run on the sampled thread.
constexpr int kStayOpen[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT,
                             SIGTRAP, SIGSYS, SIGPIPE, SIGPROF, SIGVTALRM};

sigset_t Stops() {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
    sigaddset(&stops, SIGHUP);
  return stops;
}

[[noreturn]] void EndAtOnce(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
  _exit(128 + signal);  // the default action does not end a container's first process
}

// Only this thread takes signals of the process: stops become values, all others get their handler
// or default.
void Take(sigset_t stops) {
  pthread_sigmask(SIG_SETMASK, &stops, nullptr);
  while (true) {
    int signal = 0;
    if (sigwait(&stops, &signal) != 0) continue;
    if (!noting) EndAtOnce(signal);
    int none = 0;
    received.compare_exchange_strong(none, signal);
  }
}

}  // namespace

void TakeSignals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int signal : kStayOpen) sigdelset(&blocked, signal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::signal(SIGXFSZ, SIG_IGN);        // a file that exceeds its size limit is a write error
  std::thread(Take, Stops()).detach();  // lives as long as the process
}

void CatchSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  noting = true;
}

void GiveSignalsBack() {
  std::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

int ReceivedSignal() { return received; }

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return absl::StrCat("SIG", name != nullptr ? name : "?");
}

absl::Status SignalStatus() {
  if (received == 0) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped by ", SignalName(received)));
}

absl::Status StoppedStatus(int64_t steps) {
  const std::string by = received == 0 ? "stopped by a signal to another trainer"
                                       : std::string(SignalStatus().message());
  return absl::CancelledError(
      absl::StrCat(by, " after step ", steps, "; a checkpoint is written: --resume goes on"));
}

}  // namespace tandem::cli
