// `tandem bench sync`: how long trainers take to synchronise weights, by a ring and by parameter
// servers, point by point. This process starts the members of a point, is their master and prints
// their reports.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/sync/measure.h"
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

// InvalidArgument if `link` is none.
absl::StatusOr<SyncLink> LinkOf(const std::string& link) {
  if (link == "shm") return SyncLink{SyncPoint::SHM};
  if (link == "tcp") return SyncLink{SyncPoint::TCP};
  ASSIGN_OR_RETURN(const double rate, RateOf(link));
  return SyncLink{SyncPoint::CAPPED, rate};
}

absl::StatusOr<std::vector<SyncPoint>> ChosenPoints(const SyncOptions& options) {
  std::vector<std::string> links = options.links, errors;
  if (links.empty()) links = {"shm", "tcp", "1gbit", "100mbit"};
  std::vector<SyncPoint> points;
  std::string missing;  // for capped links
  for (const std::string& text : links) {
    const auto link = LinkOf(text);
    if (!link.ok()) {
      errors.emplace_back(link.status().message());
      continue;
    }
    if (link->link == SyncPoint::CAPPED) {
      missing = std::string(CheckCappedLinks().message());
      if (!missing.empty()) {
        std::printf("left out: points over %s, because there is %s\n", text.c_str(),
                    missing.c_str());
        continue;
      }
    }
    for (const SyncPoint& point : SyncPoints(*link, options.quick)) points.push_back(point);
  }
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  const auto is_left_out = [&](const SyncPoint& point) {
    return !options.bytes.empty() && std::find(options.bytes.begin(), options.bytes.end(),
                                               point.bytes()) == options.bytes.end();
  };
  points.erase(std::remove_if(points.begin(), points.end(), is_left_out), points.end());
  if (points.empty())
    return absl::InvalidArgumentError(
        "--link and --bytes leave no point; sizes in bytes: 4096, 65536, 1048576, 16777216, and "
        "without --quick 67108864, 268435456");
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
                    {"link", TextTable::LEFT, 7},
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
                      absl::StrFormat(" %.3g%%", result.share * 100),
                      point.ids() == PullPushCase::ZIPF ? " zipf" : "");
}

void Print(const SyncResult& result, report::TextTable& table) {
  const SyncPoint& point = result.point;
  const bool ring = point.way() == SyncPoint::RING;
  table.Add({WhatText(result), absl::StrCat(point.trainers(), "+", ring ? 0 : point.servers()),
             LinkText(point), ring ? "ring" : "ps", FigureText(result.microseconds, 0),
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
  const auto points = ChosenPoints(options);
  if (!points.ok()) return cli::ReportError(points.status());
  std::fputs(kAbout, stdout);
  report::TextTable table = NewTable();
  std::vector<std::string> objects;
  std::string wrong;
  for (const SyncPoint& point : *points) {
    int exit_code = 0;
    const std::optional<SyncResult> result = Measure(point, &exit_code);
    if (!result.has_value()) return exit_code;
    Print(*result, table);
    if (wrong.empty() && !result->wrong.empty())
      wrong = absl::StrCat(NameOf(point), ": ", result->wrong);
    objects.push_back(JsonOf(*result));
  }
  if (absl::Status status = json.Write(objects); !status.ok()) return cli::ReportError(status);
  return wrong.empty() ? 0 : cli::ReportError(absl::InternalError(wrong));
}

}  // namespace tandem::bench
