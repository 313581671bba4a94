// Programs run as a user runs them: started, signalled, waited for with a deadline, their output kept; and what /proc says of
// processes that nobody here started. Thread rule: one thread per object.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem::support {

// Long enough for what takes a moment on an idle machine. No test waits longer for what never comes.
inline constexpr double kPatienceSeconds = 30;

// How a program ended and what it printed.
struct Ended {
  int exit_code = -1;  // 128 + n for signal n
  bool timed_out = false;
  double seconds = 0;
  std::string out, err;

  std::vector<std::string> ErrorLines() const;
};

class Process {
 public:
  // Starts program `arguments[0]`. Its output goes to files in `folder`, which must outlive this object.
  Process(const std::string& folder, const std::vector<std::string>& arguments);
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Of one that has ended, Wait returns at once. REQUIRES: before Wait.
  bool HasEnded() const;
  // How it ended. One that still runs after `deadline_seconds` is killed and has timed out.
  Ended Wait(double deadline_seconds = kPatienceSeconds);
  // Like Wait, for a program that takes long on a slow machine. The program is killed when it has done nothing for kPatienceSeconds: it
  // and its children wrote to no file of the folder and computed for less than a second.
  Ended WaitWhileItWorks();

 private:
  template <class HasTime>
  Ended WaitWhile(const HasTime& has_time);

  const std::string folder_;
  const std::string output_;  // path without ending
  const double started_;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

// Whether this signal was sent to a process that has not taken it yet.
bool HasPending(pid_t pid, int signal);

// Whether /proc is there: without it (a bare chroot) the functions below find nothing.
bool HasProc();

struct RunningProcess {
  pid_t pid = 0, parent = 0;
  std::vector<std::string> arguments;

  // What follows this flag, or "".
  std::string ValueOf(const std::string& flag) const;
};

// Every running process but this one that has `text` in one of its arguments. A dead one that nobody reaped does not run.
std::vector<RunningProcess> ProcessesMentioning(const std::string& text);

// Names of shared-memory files of this project.
std::vector<std::string> SharedMemoryFiles();

// A listening socket on 127.0.0.1 at a port of the system's choice, until the object goes.
class ListeningPort {
 public:
  ListeningPort();
  ~ListeningPort();
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;

  std::string address() const;  // host:port

 private:
  int socket_ = -1;
  int port_ = 0;
};

// Whether somebody accepts connections at 127.0.0.1:PORT.
bool SomebodyListens(const std::string& address);

void SleepBriefly();
double Now();  // monotonic seconds

// Polls until `condition` holds, and says whether it did in time.
template <class Condition>
bool Eventually(double deadline_seconds, Condition condition) {
  const double deadline = Now() + deadline_seconds;
  while (!condition()) {
    if (Now() > deadline) return false;
    SleepBriefly();
  }
  return true;
}

}  // namespace tandem::support
