// `tandem sweep`: runs a job for every combination of values and seeds, one run after another, and
// ends with a page and a table about all of them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/terminal.h"
#include "kernels/base/utf8.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/run_folder.h"
#include "trainer/cli/sweep_points.h"
#include "trainer/job/settings.h"
#include "trainer/report/page/group_table.h"
#include "trainer/report/page/run_files.h"
#include "trainer/report/page/seed_groups.h"
#include "trainer/report/run_json.h"
#include "trainer/report/run_output.h"
#include "trainer/report/text_table.h"

namespace tandem::cli {

namespace {

constexpr size_t kMostName = 200;   // of a folder below --out; systems allow 255
constexpr size_t kMostMetrics = 2;  // columns that fit a terminal
constexpr int kDiverged = 70;

// One run of the sweep.
struct SweepRun {
  std::string name;
  RunOptions options;
};

using Settings = std::vector<std::pair<std::string, std::string>>;

bool IsComplete(const SweepRun& run) {
  return report::StatusOfRun(run.options.out) == report::kCompleted;
}

// Returns how a completed run was made otherwise than the job says; empty: equally.
std::string OtherSetting(const SweepRun& run, const Settings& settings) {
  const auto found = report::ReadRun(run.options.out);
  if (!found.ok()) return "";
  for (const auto& [path, value] : settings) {
    // The data decides these where the job leaves them open.
    const bool open = value == "0" && (path == "data.num_items" || path == "train.max_steps" ||
                                       path == "optimizer.schedule_steps");
    const std::string was = found->Figure("settings." + path);
    if (!open && was != value)
      return absl::StrCat(path, " was ", was.empty() ? "absent" : Printable(was), " and is now ",
                          Printable(value));
  }
  return "";
}

std::vector<SweepRun> RunsOf(const SweepOptions& options, const std::vector<SweepPoint>& points) {
  std::vector<SweepRun> runs;
  for (const SweepPoint& point : points) {
    SweepRun run{point.name, options.run};
    run.options.sets.insert(run.options.sets.end(), point.sets.begin(), point.sets.end());
    run.options.out = absl::StrCat(options.run.out, "/", point.name);
    run.options.resume = kResumeAuto;
    runs.push_back(std::move(run));
  }
  return runs;
}

// Checks every run's job before any run starts. InvalidArgument has all mistakes, of equal kinds
// the first.
absl::Status CheckRuns(const std::vector<SweepRun>& runs, const tasks::Kinds& kinds) {
  std::vector<std::string> errors;
  std::map<std::string, std::string> known;  // the names of runs, by their settings
  std::string equal, foreign;
  const auto add = [&errors](const std::string& error) {
    if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
  };
  for (const SweepRun& run : runs) {
    if (run.name.size() > kMostName)
      add(absl::StrCat("the folder of ", run.name, " would have a name of ", run.name.size(),
                       " symbols; allowed: ", kMostName));
    const absl::StatusOr<Job> job = LoadJobOf(run.options, kinds);
    if (!job.ok()) {
      add(std::string(job.status().message()));
      continue;
    }
    const Settings settings = job::SettingsOf(*job);
    const std::string text = absl::StrJoin(settings, "\n", absl::PairFormatter("="));
    const auto [other, is_new] = known.emplace(text, run.name);
    if (!is_new && equal.empty())
      equal = absl::StrCat("--grid: ", other->second, " and ", run.name, " are the same run");
    if (!IsComplete(run) || !foreign.empty()) continue;
    if (const std::string setting = OtherSetting(run, settings); !setting.empty()) {
      foreign = absl::StrCat("--out: the run in ", Printable(run.options.out),
                             " is of another sweep: ", setting, "; give another --out");
    }
  }
  for (const std::string& error : {equal, foreign}) {
    if (!error.empty()) add(error);
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

absl::StatusOr<std::vector<SweepRun>> PlanOf(const SweepOptions& options,
                                             const tasks::Kinds& kinds) {
  RETURN_IF_ERROR(CheckOutPath(options.run));
  std::vector<std::string> errors;
  std::vector<GridAxis> axes;
  for (const std::string& text : options.grid) {
    auto axis = ParseGridAxis(text);
    if (axis.ok())
      axes.push_back(*std::move(axis));
    else
      errors.emplace_back(axis.status().message());
  }
  absl::StatusOr<std::vector<uint64_t>> seeds = std::vector<uint64_t>();
  if (!options.seeds.empty()) seeds = ParseSeeds(options.seeds);
  if (!seeds.ok()) errors.emplace_back(seeds.status().message());
  if (options.grid.empty() && options.seeds.empty())
    errors.emplace_back("a sweep has --grid PATH=A,B or --seeds FIRST..LAST, or both");
  if (report::StatusOfRun(options.run.out).has_value())
    errors.push_back(absl::StrCat("--out ", Printable(options.run.out),
                                  " holds a run; give a folder for the runs of the sweep"));
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  std::vector<SweepRun> runs = RunsOf(options, SweepPoints(axes, *seeds));
  RETURN_IF_ERROR(CheckRuns(runs, kinds));
  return runs;
}

// Prints the mean and the standard deviation of each point of the grid.
void PrintTable(const std::vector<report::RunFiles>& runs) {
  const report::PageTable groups = report::GroupTable(report::GroupsOf(runs), kMostMetrics);
  std::vector<report::TextTable::Column> columns;
  for (const report::PageColumn& column : groups.columns)
    columns.push_back(
        {column.heading, column.number ? report::TextTable::RIGHT : report::TextTable::LEFT});
  report::TextTable table(std::move(columns));
  for (const std::vector<std::string>& row : groups.rows) table.Add(row);
  std::printf("\n%s\n", table.TakeLines(TerminalColumns()).c_str());
}

// Says what the runs reached. Runs that left nothing are not in it.
absl::Status Conclude(const SweepOptions& options, const std::vector<SweepRun>& runs) {
  std::vector<std::string> folders;
  std::vector<report::RunFiles> read;
  for (const SweepRun& run : runs) {
    auto files = report::ReadRun(run.options.out);
    if (!files.ok()) continue;
    folders.push_back(run.options.out);
    read.push_back(*std::move(files));
  }
  if (read.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string page, report::MakeRunPage(folders));
  const std::string path = report::RunPagePath(options.run.out);
  RETURN_IF_ERROR(report::WriteRunPage(page, path));
  if (options.run.log_format == report::LogFormat::JSON) return absl::OkStatus();
  PrintTable(read);
  std::printf("wrote %s, a page about %zu run%s\n", Printable(path).c_str(), read.size(),
              read.size() == 1 ? "" : "s");
  return absl::OkStatus();
}

}  // namespace

int Sweep(const SweepOptions& options, const tasks::Kinds& kinds) {
  const auto runs = PlanOf(options, kinds);
  if (!runs.ok()) return ReportError(runs.status());
  const bool speaks = options.run.log_format == report::LogFormat::TEXT;
  int code = 0;
  for (size_t i = 0; i < runs->size(); ++i) {
    const SweepRun& run = (*runs)[i];
    const bool complete = IsComplete(run);
    if (speaks)
      std::printf("%srun %zu of %zu: %s%s\n", i == 0 || complete ? "" : "\n", i + 1, runs->size(),
                  run.name.c_str(), complete ? " is already complete" : "");
    std::fflush(stdout);
    if (complete) continue;
    const int ended = Launch(run.options, kinds);
    // A grid may hold values with which a model diverges. Other failures would meet every run.
    if (ended == kDiverged) {
      code = ended;
    } else if (ended != 0) {
      std::fprintf(stderr, "the sweep ends with run %zu of %zu; the same command goes on\n", i + 1,
                   runs->size());
      return ended;
    }
  }
  const absl::Status concluded = Conclude(options, *runs);
  return concluded.ok() ? code : ReportError(concluded);
}

}  // namespace tandem::cli
