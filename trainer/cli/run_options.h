// The command line's options of one run, for all subcommands.
// Thread rule: plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/report/progress.h"

namespace tandem::cli {

// Resumes from the newest checkpoint in `out`. Without a checkpoint, "newest" is an error and
// "auto" starts a new run.
inline constexpr char kResumeNewest[] = "newest", kResumeAuto[] = "auto";

struct RunOptions {
  std::string job_path;
  std::vector<std::string> sets;  // "path=value"
  std::string out = "out/run";
  report::LogFormat log_format = report::LogFormat::TEXT;
  int num_ps = 1;
  std::optional<int> num_trainers;      // absent: the job's layout says
  std::optional<int> dp, tp, pp, zero;  // fields of `parallel` in short
  int num_workers = 0;                  // processes that host remote modules
  bool local = false;
  // How to treat a run that `out` holds. The run is refused if neither `resume` nor `overwrite` is
  // given. `resume` is kResumeNewest, kResumeAuto or the folder of a checkpoint.
  std::string resume;
  bool data_changed = false;  // resumes although the checkpoint was trained on other files
  bool overwrite = false;
  std::string master;  // host:port; launch picks a port when empty
  // The file with the job's secret; "-": standard input; empty: TANDEM_SECRET.
  std::string secret_file;
};

// The options of a role in a process of its own, started by `launch` or by a scheduler.
struct RoleOptions : RunOptions {
  std::string listen;     // host:port; port 0 picks one
  std::string advertise;  // host:port where others reach this role; empty: see rpc::ReachedAt
  std::string health;     // host:port of a trainer's health service; empty: none
  int index = -1;         // the wanted rank; -1: the scheduler says, else the master decides
  // A role that wants to join gives up after this many seconds without an answer of the master, or
  // without an address of a member. A master gives up when a member is missing for so long. Absent:
  // 30 s for a role, runtime.timeout_seconds for a master.
  std::optional<double> join_timeout;
  int out_lock = -1;  // file descriptor of `launch`'s lock of `out` (folder_lock.h); -1: none
};

}  // namespace tandem::cli
