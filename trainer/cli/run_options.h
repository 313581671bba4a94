// What a command line says about one run, whatever the subcommand.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/progress.h"

namespace tandem::cli {

// Goes on from the newest checkpoint in `out`: an error without one, or only if there is one.
inline constexpr char kResumeNewest[] = "newest", kResumeAuto[] = "auto";

struct RunOptions {
  std::string job_path;
  std::vector<std::string> sets;  // "path=value"
  std::string out = "out/run";
  report::LogFormat log_format = report::LogFormat::TEXT;
  int num_ps = 1;
  int num_trainers = 1;
  int num_workers = 0;  // processes that host remote modules
  bool local = false;
  // What becomes of a run that `out` holds; it is refused if neither is given. `resume` is kResumeNewest, kResumeAuto or the folder of
  // a checkpoint.
  std::string resume;
  bool data_changed = false;  // goes on although the checkpoint was trained on other files
  bool overwrite = false;
  std::string master;  // host:port; launch picks a port when empty
  std::string secret_file;  // that holds the job's secret; "-": standard input; empty: TANDEM_SECRET
};

// A role of its own process, started by `launch` or by a scheduler.
struct RoleOptions : RunOptions {
  std::string listen;  // host:port; port 0 picks one
  int index = -1;      // the rank wanted; -1: the master decides
  double join_timeout = 30;  // seconds without an answer of the master after which a role that wants to join gives up
  int out_lock = -1;   // file descriptor of the lock of `out` that `launch` has (folder_lock.h); -1: none
};

}  // namespace tandem::cli
