#include "trainer/cli/process/supervisor.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/signals.h"

namespace tandem::cli {

namespace {

constexpr double kTermSeconds = 3;     // from SIGTERM to SIGKILL after a failure
constexpr double kLingerSeconds = 10;  // for the other children, after the first good end
constexpr int kPollMilliseconds = 20;

// Runs between fork and exec. Allocates no memory, because a thread that was not forked may hold
// the allocator's lock.
[[noreturn]] void BecomeRole(char* const* argv, int secret_pipe, int error_pipe, int inherited,
                             pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(75);  // the parent died before prctl
  dup2(secret_pipe, STDIN_FILENO);
  dup2(error_pipe, STDERR_FILENO);
  if (inherited >= 0) fcntl(inherited, F_SETFD, 0);
  GiveSignalsBack();
  execv("/proc/self/exe", argv);
  execvp(program_invocation_name, argv);  // a bare chroot has no /proc
  _exit(126);
}

// Returns the read end of a pipe that holds the secret once. Command lines and environments would
// show it in /proc.
absl::StatusOr<int> PipeWith(const rpc::Secret& secret) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::UnavailableError(
        absl::StrCat("no pipe for the job's secret: ", std::strerror(errno)));
  const absl::Status written = secret.Write(ends[1]);  // fits, because a pipe holds at least a page
  close(ends[1]);
  if (written.ok()) return ends[0];
  close(ends[0]);
  return written;
}

}  // namespace

Supervisor::~Supervisor() {
  SignalAll(SIGKILL);
  for (Child& child : children_) {
    if (!child.ended) waitpid(child.pid, nullptr, 0);
    if (child.error_pipe >= 0) close(child.error_pipe);
  }
}

absl::Status Supervisor::Start(const std::string& name, const std::vector<std::string>& arguments,
                               int inherited) {
  ASSIGN_OR_RETURN(const int secret_pipe, PipeWith(*secret_));
  const absl::Cleanup close_secret = [secret_pipe] { close(secret_pipe); };
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe for ", name, ": ", std::strerror(errno)));
  }
  fcntl(pipe_ends[1], F_SETFL, 0);  // the child writes as to any stderr
  static char self[] = "tandem";
  std::vector<char*> argv{self};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) BecomeRole(argv.data(), secret_pipe, pipe_ends[1], inherited, parent);
  const int error = errno;
  close(pipe_ends[1]);
  if (pid < 0) {
    close(pipe_ends[0]);
    return absl::UnavailableError(absl::StrCat("cannot start ", name, ": ", std::strerror(error)));
  }
  Child& child = children_.emplace_back();
  child.name = name;
  child.pid = pid;
  child.error_pipe = pipe_ends[0];
  return absl::OkStatus();
}

void Supervisor::TakeLine(Child& child, const std::string& line) {
  // A process that ran out of memory prints the line without its name.
  const std::string text =
      TextOfRoleLine(child.name, line).value_or(absl::StartsWith(line, kOwnFailure) ? line : "");
  if (absl::StartsWith(text, kOwnFailure)) {
    child.own_failure = true;
    child.last_words = text.substr(std::strlen(kOwnFailure));
  } else if (absl::StartsWith(text, kToldFailure)) {
    child.last_words = text.substr(std::strlen(kToldFailure));
  } else if (!child.last_words.empty()) {
    absl::StrAppend(&child.last_words, "\n", line);  // last words of several lines
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void Supervisor::ReadErrors(Child& child) {
  char bytes[4096];
  ssize_t n;
  while ((n = read(child.error_pipe, bytes, sizeof bytes)) > 0) {
    for (ssize_t i = 0; i < n; ++i) {
      if (bytes[i] != '\n') {
        child.partial += bytes[i];
        continue;
      }
      TakeLine(child, child.partial);
      child.partial.clear();
    }
  }
  if (n == 0) {  // every writer is gone
    if (!child.partial.empty()) TakeLine(child, child.partial);
    close(child.error_pipe);
    child.error_pipe = -1;
  }
}

void Supervisor::PollErrors() {
  std::vector<pollfd> polled;
  for (const Child& child : children_) polled.push_back({child.error_pipe, POLLIN, 0});
  poll(polled.data(), polled.size(), kPollMilliseconds);
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].error_pipe >= 0 && polled[i].revents != 0) ReadErrors(children_[i]);
  }
}

void Supervisor::ReapEnded(Outcome& outcome) {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    int status = 0;
    if (child.ended || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.ended = true;
    if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
    child.exit_code = child.signal != 0 ? 128 + child.signal : WEXITSTATUS(status);
    if (child.error_pipe >= 0) ReadErrors(child);
    if (first_failed_ < 0 && IsFailure(child)) {
      first_failed_ = static_cast<int>(i);
      outcome.exit_code = child.exit_code;
    }
  }
}

// A child that was told to stop may end by that signal, with its code, with words about others, or
// well. Any other end is a failure, even during a stop.
bool Supervisor::IsFailure(const Child& child) const {
  if (child.exit_code == 0) return false;
  if (!killed_by_us_) return true;
  if (!Stopping() || child.exit_code == 128 + ReceivedSignal() ||
      child.exit_code == 128 + last_sent_)
    return false;
  return child.signal != 0 || child.own_failure || child.last_words.empty();
}

void Supervisor::SignalAll(int signal) {
  last_sent_ = signal;
  for (const Child& child : children_) {
    if (!child.ended) kill(child.pid, signal);
  }
}

bool Supervisor::AllEnded() const {
  for (const Child& child : children_) {
    if (!child.ended) return false;
  }
  return true;
}

// A role's own failure explains more than what other roles were told about it.
void Supervisor::ChooseCause(Outcome& outcome) {
  if (first_failed_ < 0) return;
  const Child& first = children_[static_cast<size_t>(first_failed_)];
  if (first.signal != 0) {
    outcome.cause =
        absl::StrCat(first.name, " (pid ", first.pid, ") was killed by ", SignalName(first.signal));
    return;
  }
  for (const Child& child : children_) {
    if (!child.own_failure) continue;
    outcome.cause = absl::StrCat(child.name, ": ", child.last_words);
    outcome.exit_code = child.exit_code;
    return;
  }
  outcome.cause = first.last_words.empty() ? absl::StrCat(first.name, " (pid ", first.pid,
                                                          ") ended with code ", first.exit_code)
                                           : first.last_words;
}

// Servers end by themselves once every trainer has ended well. A server that does not is a failure
// of its own.
std::string Supervisor::Lingering(double now) {
  const Child* left = nullptr;
  for (const Child& child : children_) {
    if (child.ended) continue;
    if (absl::StartsWith(child.name, "trainer-")) return "";
    left = &child;
  }
  if (left == nullptr) return "";
  if (trainers_ended_ == 0) trainers_ended_ = now;
  if (now - trainers_ended_ < kLingerSeconds) return "";
  return absl::StrCat(left->name, " did not end within ", kLingerSeconds, " s of the trainers");
}

bool Supervisor::Stopping() const { return killed_by_us_ && ReceivedSignal() != 0; }

// A trainer's last words say after which step it stopped.
std::string Supervisor::StopCause() const {
  for (const Child& child : children_) {
    if (absl::StartsWith(child.name, "trainer-") && !child.last_words.empty())
      return child.last_words;
  }
  return std::string(SignalStatus().message());
}

Supervisor::Outcome Supervisor::Run(const std::function<void()>& on_ending) {
  Outcome outcome;
  double ending_since = 0;
  while (!AllEnded()) {
    PollErrors();
    ReapEnded(outcome);
    const double now = MonotonicSeconds();
    if (ending_since == 0) {
      const std::string lingering = first_failed_ < 0 ? Lingering(now) : "";
      if (!lingering.empty()) outcome = {.exit_code = 75, .cause = lingering};
      killed_by_us_ = first_failed_ < 0 && (ReceivedSignal() != 0 || !lingering.empty());
      if (first_failed_ >= 0 || killed_by_us_) {
        ending_since = now;
        if (on_ending) on_ending();
        SignalAll(ReceivedSignal() != 0 ? ReceivedSignal() : SIGTERM);
      }
    } else if (last_sent_ != SIGKILL &&
               now - ending_since >
                   (Stopping() ? absl::ToDoubleSeconds(kStopGrace) : kTermSeconds)) {
      SignalAll(SIGKILL);
    }
  }
  if (first_failed_ < 0 && Stopping())
    return {.exit_code = 128 + ReceivedSignal(), .cause = StopCause(), .stopped = true};
  ChooseCause(outcome);
  return outcome;
}

int ReportOutcome(const Supervisor::Outcome& outcome) {
  PrintFailure(absl::StrCat(outcome.stopped ? "" : kOwnFailure, outcome.cause, "\n"));
  return outcome.exit_code;
}

}  // namespace tandem::cli
