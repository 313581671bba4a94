// Programs run as a user runs them: started, signalled, and waited for with a deadline. Their
// output is kept.
// Also reads /proc for processes that this program did not start.
// Thread rule: one thread per object.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace tandem::support {

// Long enough for anything that takes a moment on an idle machine. No test waits longer for an
// event that never comes.
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
  // Starts program `arguments[0]`. Its output goes to files in `folder`. REQUIRES: `folder`
  // outlives this object.
  Process(const std::string& folder, const std::vector<std::string>& arguments);
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Returns true if the program has ended: Wait then returns at once. REQUIRES: Wait has not been
  // called.
  bool HasEnded() const;
  // Returns how the program ended. A program that still runs after `deadline_seconds` is killed and
  // counts as timed out.
  Ended Wait(double deadline_seconds = kPatienceSeconds);
  // Like Wait, for a program that takes long on a slow machine. Kills the program when it has done
  // nothing for kPatienceSeconds.
  // Doing nothing means: the program and its children wrote to no file of the folder and computed
  // for less than a second.
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

// Returns true if the process has yet to take a `signal` that was sent to it.
bool HasPending(pid_t pid, int signal);

// Returns true if /proc exists. Without /proc (a bare chroot) the functions below find nothing.
bool HasProc();

struct RunningProcess {
  pid_t pid = 0, parent = 0;
  std::vector<std::string> arguments;

  // The argument's value after this flag, or "".
  std::string ValueOf(const std::string& flag) const;
};

// Every running process except this one with `text` in one of its arguments. Unreaped dead
// processes do not count.
std::vector<RunningProcess> ProcessesMentioning(const std::string& text);

// Names of shared-memory files of this project.
std::vector<std::string> SharedMemoryFiles();

// A listening socket on 127.0.0.1, at a port of the system's choice, for as long as the object
// lives.
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

// Returns true if a process accepts connections at 127.0.0.1:PORT.
bool SomebodyListens(const std::string& address);

void SleepBriefly();
double Now();  // monotonic seconds

// Polls until `condition` holds. Returns true if it held in time.
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
