// `tandem bench sync`: how long trainers take to synchronise weights, by a ring and by parameter
// servers, point by point. This process starts the members of a point, is their master and prints
// their reports.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/sync/measure.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"
#include "trainer/bench/sync/report_page.h"
#include "trainer/bench/sync/result.h"
#include "trainer/bench/sync/roles.h"
#include "trainer/bench/sync/winners.h"
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

std::set<uint64_t> SizesOf(bool quick) {
  std::set<uint64_t> sizes;
  for (const SyncPoint& point : SyncPoints({}, quick)) sizes.insert(point.bytes());
  return sizes;
}

// Everything that is wrong with the flags, one per line. The links go to `links`, each once.
absl::Status CheckFlags(const SyncOptions& options, std::vector<SyncLink>* links) {
  std::vector<std::string> errors, texts = options.links;
  if (texts.empty()) texts = {"shm", "tcp", "1gbit", "100mbit"};
  for (const std::string& text : texts) {
    const auto link = LinkOf(text);
    if (!link.ok()) {
      errors.emplace_back(link.status().message());
      continue;
    }
    const auto is_same = [&](const SyncLink& other) {
      return other.link == link->link && other.bits_per_second == link->bits_per_second;
    };
    if (std::none_of(links->begin(), links->end(), is_same)) links->push_back(*link);
  }
  const std::set<uint64_t> sizes = SizesOf(options.quick);
  for (const uint64_t bytes : options.bytes) {
    if (sizes.count(bytes) == 0)
      errors.push_back(
          absl::StrCat("--bytes is ", bytes, "; allowed: ", absl::StrJoin(sizes, ", ")));
  }
  for (const auto& [flag, path] :
       {std::pair("--json", options.json), {"--report", options.report}}) {
    if (const std::string why = FigureFile::WhyNot(path, flag); !why.empty()) errors.push_back(why);
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

// Leaves out links that this machine cannot make, with a note to the user.
absl::StatusOr<std::vector<SyncPoint>> ChosenPoints(const SyncOptions& options,
                                                    const std::vector<SyncLink>& links) {
  std::vector<SyncPoint> points;
  std::string missing;  // for capped links
  for (const SyncLink& link : links) {
    std::vector<SyncPoint> more = SyncPoints(link, options.quick);
    if (link.link == SyncPoint::CAPPED) {
      missing = std::string(CheckCappedLinks().message());
      if (!missing.empty()) {
        std::printf("left out: points over %s, because there is %s\n", LinkText(more[0]).c_str(),
                    missing.c_str());
        continue;
      }
    }
    for (SyncPoint& point : more) {
      if (options.bytes.empty() || std::find(options.bytes.begin(), options.bytes.end(),
                                             point.bytes()) != options.bytes.end())
        points.push_back(std::move(point));
    }
  }
  if (!points.empty()) return points;
  return absl::InvalidArgumentError(absl::StrCat(
      "no point is left: links of a rate are not possible here, because there is ", missing));
}

constexpr char kAbout[] =
    "A synchronisation begins when the gradients of a step are ready on all trainers. It ends when "
    "all can use the new weights, or the rows of the next step's ids. Adagrad is part of it. T+S: "
    "trainers and servers. us: the median; model: what the model of cost says; first us: with all "
    "that is made once. CPU us: of all members together. ~: modelled, not measured, because one "
    "synchronisation would take over 2 s.";

// Prints text in lines that fit the terminal.
void PrintWrapped(const std::string& text) {
  std::fputs(cli::WrapHelp(text, cli::HelpColumns()).c_str(), stdout);
}

// A synchronisation that would take longer is not measured.
constexpr double kLongestSeconds = 2;

// "table 16 MB 1% zipf"
std::string WhatText(const SyncResult& result) {
  const SyncPoint& point = result.point;
  if (point.what() == SyncPoint::DENSE) return absl::StrCat("dense ", SizeText(point.bytes()));
  return absl::StrCat("table ", SizeText(point.bytes()), " ", PercentText(result.share),
                      point.ids() == PullPushCase::ZIPF ? " zipf" : "");
}

// The cells that say which point a line is about.
std::vector<std::string> PointCells(const SyncResult& result) {
  const SyncPoint& point = result.point;
  const bool ring = point.way() == SyncPoint::RING;
  return {WhatText(result), absl::StrCat(point.trainers(), "+", ring ? 0 : point.servers()),
          LinkText(point), ring ? "ring" : "ps"};
}

// Prints results line by line, as they come.
class Table {
 public:
  void Print(const SyncResult& result) {
    std::vector<std::string> cells = PointCells(result);
    const double model = result.modelled.seconds * 1e6;
    if (result.measured) {
      for (const double figure : {result.microseconds, model, result.first_microseconds,
                                  result.cpu_us_trainers + result.cpu_us_servers})
        cells.push_back(FigureText(figure, 0));
    } else {
      cells.insert(cells.end(), {"~", FigureText(model, 0)});
    }
    table_.Add(std::move(cells));
    std::fputs(table_.TakeLines(cli::HelpColumns()).c_str(), stdout);
    if (!result.wrong.empty()) std::printf("  WRONG: %s\n", result.wrong.c_str());
    std::fflush(stdout);
  }

 private:
  report::TextTable table_{{{"what", report::TextTable::LEFT, 22},
                            {"T+S", {}, 3},
                            {"link", report::TextTable::LEFT, 7},
                            {"way", report::TextTable::LEFT, 4},
                            {"us", {}, 7},
                            {"model", {}, 7},
                            {"first us", {}, 8},
                            {"CPU us", {}, 7}}};
};

// Prints the bytes that members sent and received beside those of the formulas.
void PrintBytes(const std::vector<SyncResult>& results) {
  using report::TextTable;
  TextTable table({{"what", TextTable::LEFT},
                   {"T+S"},
                   {"link", TextTable::LEFT},
                   {"way", TextTable::LEFT},
                   {"MB/T"},
                   {"formula"},
                   {"MB/S"},
                   {"formula"}});
  for (const SyncResult& result : results) {
    if (!result.measured || result.modelled.trainer_bytes == 0) continue;
    std::vector<std::string> cells = PointCells(result);
    for (const double bytes : {result.bytes_per_trainer, result.modelled.trainer_bytes,
                               result.bytes_per_server, result.modelled.server_bytes})
      cells.push_back(FigureText(bytes / 1e6, 3));
    table.Add(std::move(cells));
  }
  std::printf("\n");
  PrintWrapped(
      "MB sent and received by a trainer (T) and a server (S) in one synchronisation, counted and "
      "by "
      "formula. A link of a rate counts headers too.");
  std::printf("\n%s", table.TakeLines(cli::HelpColumns()).c_str());
}

void PrintWinners(const std::vector<SyncResult>& results) {
  const std::vector<WayPair> pairs = PairsOf(results);
  for (const std::string& link : LinksOf(results)) {
    const std::string text = WinnersText(pairs, link);
    if (!text.empty()) PrintWrapped("\n" + text);
  }
}

void PrintCosts(const CostProfile& costs, Machines::Transport last) {
  PrintWrapped(
      absl::StrCat("\nThe model of cost, fitted on these probes (", costs.machine(), "):"));
  for (const std::string& line : LinesOf(costs, last)) std::printf("  %s\n", line.c_str());
  std::printf("\n");
}

// Measures the probes and fits the model. Appends them to `results`.
std::optional<CostProfile> FitModel(const std::vector<SyncPoint>& points, Table& table,
                                    std::vector<SyncResult>* results, int* exit_code) {
  const auto has = [&](SyncPoint::Link link) {
    return std::any_of(points.begin(), points.end(),
                       [&](const SyncPoint& point) { return point.link() == link; });
  };
  const bool network = has(SyncPoint::CAPPED);
  std::printf("\nprobes, on which the model of cost is fitted\n\n");
  const size_t first = results->size();
  auto costs = MeasureCosts(
      ProbePoints(has(SyncPoint::TCP) || network, network),
      [&](SyncResult result) {
        result.fitted = true;
        table.Print(result);
        results->push_back(std::move(result));
      },
      exit_code);
  if (!costs.has_value()) return std::nullopt;
  for (size_t i = first; i < results->size(); ++i)
    (*results)[i].modelled = CostOf((*results)[i].point, *costs);
  PrintCosts(*costs, WhereOf(results->back().point).transport);
  return costs;
}

std::optional<SyncResult> MeasureOrModel(const SyncPoint& point, const CostProfile& costs,
                                         int* exit_code) {
  const Cost modelled = CostOf(point, costs);
  std::optional<SyncResult> result;
  if (modelled.seconds > kLongestSeconds) {
    const Synchronisation what = WhatOf(point);
    result = SyncResult{.point = point, .share = what.bytes_per_trainer / what.bytes};
    result->measured = false;
  } else {
    result = Measure(point, exit_code);
  }
  if (result.has_value()) result->modelled = modelled;
  return result;
}

}  // namespace

int BenchSync(const SyncOptions& options) {
  if (!options.member.role.empty()) return RunRole(options);
  cli::CatchSignals();
  std::vector<SyncLink> links;
  if (absl::Status status = CheckFlags(options, &links); !status.ok())
    return cli::ReportError(status);
  const auto points = ChosenPoints(options, links);
  if (!points.ok()) return cli::ReportError(points.status());
  FigureFile json(options.json), report(options.report, "--report");
  for (const FigureFile* const file : {&json, &report}) {
    if (absl::Status status = file->status(); !status.ok()) return cli::ReportError(status);
  }
  PrintWrapped(kAbout);
  Table table;
  int exit_code = 0;
  std::vector<SyncResult> results;
  const std::optional<CostProfile> costs = FitModel(*points, table, &results, &exit_code);
  if (!costs.has_value()) return exit_code;
  for (const SyncPoint& point : *points) {
    std::optional<SyncResult> result = MeasureOrModel(point, *costs, &exit_code);
    if (!result.has_value()) return exit_code;
    table.Print(*result);
    results.push_back(*std::move(result));
  }
  PrintBytes(results);
  std::vector<std::string> objects;
  std::string wrong;
  for (const SyncResult& result : results) {
    objects.push_back(JsonOf(result));
    if (wrong.empty() && !result.wrong.empty())
      wrong = absl::StrCat(NameOf(result.point), ": ", result.wrong);
  }
  for (const absl::Status& status :
       {json.Write(objects), report.WriteText(SyncReport(results, *costs))}) {
    if (!status.ok()) return cli::ReportError(status);
  }
  PrintWinners(results);
  if (!options.report.empty()) std::printf("wrote %s\n", options.report.c_str());
  return wrong.empty() ? 0 : cli::ReportError(absl::InternalError(wrong));
}

}  // namespace tandem::bench
