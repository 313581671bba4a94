// Runs the roles of one job as child processes and ends them together. The first failure decides;
// the other children get SIGTERM and are then killed. A child dies with its parent. Children
// inherit stdout. The supervisor passes their stderr on line by line, except their last words about
// why they end: of these it shows only the cause.
// Thread rule: one thread, one supervisor per process.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/status.h"
#include "rpc/credentials.h"

namespace tandem::cli {

// The start of a role's last line on stderr: its own failure, or one that it was told about.
inline constexpr char kOwnFailure[] = "error: ";
inline constexpr char kToldFailure[] = "ended: ";

class Supervisor {
 public:
  // Every child reads `secret` from its standard input.
  // REQUIRES: the secret outlives this object.
  explicit Supervisor(const rpc::Secret* secret) : secret_(secret) {}
  ~Supervisor();  // kills and reaps the remaining children
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // `name` is the role and rank ("trainer-1"); `arguments` follow the program's own path. The child
  // inherits file descriptor `inherited` under the same number; -1: none.
  absl::Status Start(const std::string& name, const std::vector<std::string>& arguments,
                     int inherited = -1);

  struct Outcome {
    int exit_code = 0;
    std::string cause;     // empty if all ended well
    bool stopped = false;  // a signal stopped the job, and every child ended as it should
  };
  // Runs until every child has ended. A signal caught by this process (signals.h) ends the job with
  // 128 + n, unless a child crashes or fails by itself meanwhile. If servers outlive the successful
  // end of the trainers by 10 s, the job ends with 75. Calls `on_ending` once, when the job begins
  // to end.
  Outcome Run(const std::function<void()>& on_ending = nullptr);

 private:
  struct Child {
    std::string name;
    pid_t pid = -1;
    int error_pipe = -1;
    std::string partial;     // an unfinished line
    std::string last_words;  // held back
    bool own_failure = false;
    bool ended = false;
    int exit_code = 0;
    int signal = 0;
  };

  void ReadErrors(Child& child);
  void TakeLine(Child& child, const std::string& line);
  void PollErrors();
  void ReapEnded(Outcome& outcome);
  bool IsFailure(const Child& child) const;
  void SignalAll(int signal);
  bool AllEnded() const;
  void ChooseCause(Outcome& outcome);
  std::string Lingering(double now);
  bool Stopping() const;  // a signal told this job to stop
  std::string StopCause() const;

  const rpc::Secret* const secret_;
  std::vector<Child> children_;
  int first_failed_ = -1;
  bool killed_by_us_ = false;  // no child failed; the supervisor ended the job
  int last_sent_ = 0;          // signal
  double trainers_ended_ = 0;
};

// Tells the user why processes ended badly and returns the exit code. Does not report a stop as an
// error.
int ReportOutcome(const Supervisor::Outcome& outcome);

}  // namespace tandem::cli
