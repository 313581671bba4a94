// The subcommands of `tandem`, one file each. Each returns the process's exit code and reports
// errors to the user on stderr.
// Commands that read a job take the kinds of model that the program knows.
// Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/cli/run_options.h"
#include "trainer/tasks/kinds/kinds.h"

namespace tandem::cli {

int Launch(const RunOptions& options, const tasks::Kinds& kinds);
int RunLocal(const RunOptions& options, const tasks::Kinds& kinds);
int RunMaster(const RoleOptions& options, const tasks::Kinds& kinds);
int RunPs(const RoleOptions& options, const tasks::Kinds& kinds);
int RunTrainer(const RoleOptions& options, const tasks::Kinds& kinds);
int RunWorker(const RoleOptions& options, const tasks::Kinds& kinds);

struct EvalOptions {
  std::string job_path;
  std::vector<std::string> sets;  // "path=value"
  std::string checkpoint;         // a step's folder, or a folder of several: takes the best
  std::string dump;               // file for one line per evaluated example; empty: none
};
int Eval(const EvalOptions& options, const tasks::Kinds& kinds);

struct GenerateOptions {
  std::string checkpoint;  // a step's folder, or a folder of several: takes the best
  // Absent: a line end, or the first symbol if the vocabulary has no line end.
  std::optional<std::string> prompt;
  int length = 500;  // symbols to write
  double temperature = 0.8, top_p = 1;
  int top_k = 0;  // 0: all
  uint64_t seed = 1;
};
int Generate(const GenerateOptions& options, const tasks::Kinds& kinds);

struct RecommendOptions {
  std::string checkpoint;  // a step's folder, or a folder of several: takes the best
  // One of: item ids separated by commas; a file of lines `user item item ...`; a file of titles,
  // one per line.
  std::string history, users, history_titles;
  int top = 10;
  bool json = false;
};
int Recommend(const RecommendOptions& options, const tasks::Kinds& kinds);

struct ExportOptions {
  std::string checkpoint;  // a step's folder, or a folder of several: takes the best
  std::string out;         // a folder that is empty or does not exist
};
int Export(const ExportOptions& options, const tasks::Kinds& kinds);

struct InspectOptions {
  // A step's folder, or a folder of several: checks all, describes the newest.
  std::string checkpoint;
};
int Inspect(const InspectOptions& options);

struct ScheduleCommandOptions {
  int pp = 4, microbatches = 8;
  std::string schedule = "ONE_F_ONE_B";
  int virtual_stages = 1;  // of each rank
  // How many slots a microbatch takes on a rank.
  int forward = 1, backward_input = 1, backward_weight = 1;
};
int Schedule(const ScheduleCommandOptions& options);

struct ReportOptions {
  std::vector<std::string> folders;  // of runs, at least one
  std::string out;  // empty: report.html in the folder of a single run, else in the working folder
};
int Report(const ReportOptions& options);

struct SweepOptions {
  RunOptions run;                 // of all runs; their folders are below `out`
  std::vector<std::string> grid;  // "path=v1,v2"
  std::string seeds;              // "1..5"; empty: the job's
};
int Sweep(const SweepOptions& options, const tasks::Kinds& kinds);

struct SynthesizeOptions {
  std::string out;
  uint64_t seed = 1;
  int users = 4000, items = 1000, min_length = 10, max_length = 30;
};
int Synthesize(const SynthesizeOptions& options);

}  // namespace tandem::cli
