// `tandem bench sync`: how long trainers take to synchronise weights, by a ring and by parameter
// servers, point by point. This process starts the members of a point, is their master and prints
// their reports.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/members.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/result.h"
#include "trainer/bench/sync/roles.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/signals.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

int RunRole(const SyncOptions& options) {
  SyncPoint point;
  if (absl::Status status = ParsePlan(options.member.what, &point); !status.ok())
    return cli::ReportError(status);
  const cli::RoleOptions role = RoleOf(options.member);
  return options.member.role == "server" ? RunSyncServer(point, role) : RunSyncTrainer(point, role);
}

std::vector<SyncPoint> ChosenPoints(const SyncOptions& options) {
  std::vector<SyncPoint> points = SyncPoints(options.quick);
  const auto has = [](const auto& chosen, const auto& value) {
    return chosen.empty() || std::find(chosen.begin(), chosen.end(), value) != chosen.end();
  };
  const auto is_left_out = [&](const SyncPoint& point) {
    return !has(options.links, NameOf(point.link())) || !has(options.bytes, point.bytes());
  };
  points.erase(std::remove_if(points.begin(), points.end(), is_left_out), points.end());
  return points;
}

constexpr char kAbout[] =
    "A synchronisation begins when the gradients of a step are ready on all trainers. It ends\n"
    "when all can use the new weights, or the rows of the next step's ids. Adagrad is part of it.\n"
    "T+S: trainers and servers. us: the median; first us: with all that is made once.\n"
    "MB/T, MB/S: sent and received by a trainer, a server. CPU us: of all members together.\n\n";

report::TextTable NewTable() {
  using report::TextTable;
  return TextTable({{"what", TextTable::LEFT, 19},
                    {"T+S", {}, 3},
                    {"link", TextTable::LEFT, 4},
                    {"way", TextTable::LEFT, 4},
                    {"us", {}, 7},
                    {"first us", {}, 8},
                    {"MB/T", {}, 7},
                    {"MB/S", {}, 7},
                    {"CPU us", {}, 7},
                    {"right", TextTable::LEFT, 5}});
}

// "table 16 MB 1% zipf"
std::string WhatText(const SyncResult& result) {
  const SyncPoint& point = result.point;
  if (point.what() == SyncPoint::DENSE) return absl::StrCat("dense ", SizeText(point.bytes()));
  return absl::StrCat("table ", SizeText(point.bytes()),
                      absl::StrFormat(" %.2g%%", result.share * 100),
                      point.ids() == PullPushCase::ZIPF ? " zipf" : "");
}

void Print(const SyncResult& result, report::TextTable& table) {
  const SyncPoint& point = result.point;
  const bool ring = point.way() == SyncPoint::RING;
  table.Add({WhatText(result), absl::StrCat(point.trainers(), "+", ring ? 0 : point.servers()),
             NameOf(point.link()), ring ? "ring" : "ps", FigureText(result.microseconds, 0),
             FigureText(result.first_microseconds, 0),
             FigureText(result.bytes_per_trainer / 1e6, 3),
             FigureText(result.bytes_per_server / 1e6, 3),
             FigureText(result.cpu_us_trainers + result.cpu_us_servers, 0),
             result.wrong.empty() ? "yes" : "NO"});
  std::fputs(table.TakeLines(cli::HelpColumns()).c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

int BenchSync(const SyncOptions& options) {
  if (!options.member.role.empty()) return RunRole(options);
  cli::CatchSignals();
  JsonFile json(options.json);
  if (absl::Status status = json.status(); !status.ok()) return cli::ReportError(status);
  const std::vector<SyncPoint> points = ChosenPoints(options);
  if (points.empty())
    return cli::ReportError(absl::InvalidArgumentError(
        "--link and --bytes leave no point; sizes in bytes: 4096, 65536, 1048576, 16777216, and "
        "without --quick 67108864, 268435456"));
  std::fputs(kAbout, stdout);
  report::TextTable table = NewTable();
  std::vector<std::string> objects;
  std::string wrong;
  for (const SyncPoint& point : points) {
    const auto outcome =
        RunMembers({.command = "sync",
                    .what = &point,
                    .servers = point.way() == SyncPoint::RING ? 0 : point.servers(),
                    .trainers = point.trainers()});
    if (!outcome.ok()) return cli::ReportError(outcome.status());
    if (const cli::Supervisor::Outcome& ended = outcome->processes; ended.exit_code != 0) {
      // A member that somebody killed does not say how this command ended.
      const bool killed = !ended.stopped && ended.exit_code > 128;
      return killed ? cli::ReportError(absl::UnavailableError(ended.cause))
                    : cli::ReportOutcome(ended);
    }
    const SyncResult result = ResultOf(point, outcome->reports);
    Print(result, table);
    if (wrong.empty() && !result.wrong.empty())
      wrong = absl::StrCat(NameOf(point), ": ", result.wrong);
    objects.push_back(JsonOf(result));
  }
  if (absl::Status status = json.Write(objects); !status.ok()) return cli::ReportError(status);
  return wrong.empty() ? 0 : cli::ReportError(absl::InternalError(wrong));
}

}  // namespace tandem::bench
