#include "trainer/bench/sync/report_page.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"
#include "trainer/bench/sync/report_charts.h"
#include "trainer/bench/sync/winners.h"
#include "trainer/report/page/page.h"

namespace tandem::bench {

namespace {

// Workers with a machine each, and a server on a machine of its own for every `kWorkersOfServer`.
constexpr int kWorkersOfServer = 4, kCoresOfMember = 16;
struct Far {
  int workers = 0;
  double gigabits = 0;
  Cost dense_ring, dense_servers, table_ring, table_servers;
};

constexpr double kDenseBytes = 400e6, kTableBytes = 10e9, kTableShare = 1e-4;

Far FarOf(int workers, double gigabits, const CostProfile& costs) {
  const Machines where{.transport = Machines::NETWORK,
                       .bits_per_second = gigabits * 1e9,
                       .member_cores = kCoresOfMember};
  const Synchronisation dense{.bytes = kDenseBytes,
                              .bytes_per_trainer = kDenseBytes,
                              .distinct_bytes = kDenseBytes,
                              .trainers = workers,
                              .servers = workers / kWorkersOfServer};
  Synchronisation table = dense;
  table.bytes = kTableBytes;
  table.bytes_per_trainer = kTableShare * kTableBytes;
  table.distinct_bytes = (1 - std::pow(1 - kTableShare, workers)) * kTableBytes;
  table.row_bytes = 256;
  return {workers,
          gigabits,
          RingCost(dense, where, costs),
          ServerCost(dense, where, costs),
          RingCost(table, where, costs),
          ServerCost(table, where, costs)};
}

void AddFar(const CostProfile& costs, report::Page* page) {
  page->AddSection("Larger clusters: modelled, not measured");
  page->AddParagraph(absl::StrFormat(
      "What the model of cost says of %.0f MB of dense weights, and of a table of %.0f GB of which "
      "a worker uses %s of the rows a step. Every worker has a machine, and so has one server for "
      "every %d workers; %d cores of a machine share the moving and updating. A byte and a message "
      "on "
      "the network cost as much more than TCP's here as is typical. There is no contention inside "
      "the network.",
      kDenseBytes / 1e6, kTableBytes / 1e9, PercentText(kTableShare), kWorkersOfServer,
      kCoresOfMember));
  report::PageTable table{.caption = "Milliseconds of one synchronisation: modelled, not measured",
                          .columns = {{"workers", true},
                                      {"Gb/s", true},
                                      {"dense, ring", true},
                                      {"dense, servers", true},
                                      {"table, ring", true},
                                      {"table, servers", true},
                                      {"limits of the faster: dense, table"}},
                          .rows = {}};
  std::vector<report::Chart> charts;
  for (const double gigabits : {10.0, 25.0, 100.0, 400.0}) {
    report::Chart chart{.title = absl::StrFormat("%.0f Gb/s: modelled, not measured", gigabits),
                        .x = {.title = "workers", .scale = report::Scale::LOG},
                        .y = {.title = "one synchronisation (ms)", .scale = report::Scale::LOG},
                        .series = {{.name = "dense, ring"},
                                   {.name = "dense, servers"},
                                   {.name = "table, ring"},
                                   {.name = "table, servers"}}};
    for (const int workers : {8, 64, 1024}) {
      const Far far = FarOf(workers, gigabits, costs);
      const Cost* const all[] = {&far.dense_ring, &far.dense_servers, &far.table_ring,
                                 &far.table_servers};
      std::vector<std::string> cells = {absl::StrCat(workers), absl::StrFormat("%.0f", gigabits)};
      for (size_t i = 0; i < 4; ++i) {
        const double time = 1e3 * all[i]->seconds;
        cells.push_back(FigureText(time, time < 10 ? 2 : 0));
        chart.series[i].points.push_back({.x = static_cast<double>(workers), .y = time});
      }
      const auto faster = [](const Cost& a, const Cost& b) {
        return NameOf((a.seconds <= b.seconds ? a : b).limit);
      };
      cells.push_back(absl::StrCat(faster(far.dense_ring, far.dense_servers), ", ",
                                   faster(far.table_ring, far.table_servers)));
      table.rows.push_back(std::move(cells));
    }
    charts.push_back(std::move(chart));
  }
  page->AddCharts(charts);
  page->AddTable(table);
}

void AddFigures(const std::vector<SyncResult>& results, report::Page* page) {
  page->AddSection("All figures");
  report::PageTable table{.caption =
                              "MB: sent and received by one member in a synchronisation, "
                              "counted and by formula. CPU: of all members together.",
                          .columns = {{"way"},
                                      {"what"},
                                      {"bytes", true},
                                      {"share", true},
                                      {"ids"},
                                      {"trainers", true},
                                      {"servers", true},
                                      {"link"},
                                      {"us", true},
                                      {"10 %", true},
                                      {"90 %", true},
                                      {"first us", true},
                                      {"model us", true},
                                      {"limit"},
                                      {"trainer MB", true},
                                      {"formula", true},
                                      {"server MB", true},
                                      {"formula", true},
                                      {"CPU us", true},
                                      {"right"}},
                          .rows = {}};
  for (const SyncResult& result : results) {
    const SyncPoint& point = result.point;
    const bool ring = point.way() == SyncPoint::RING, is_table = point.what() == SyncPoint::TABLE;
    const auto figure = [&](double value, int places) {
      return result.measured ? FigureText(value, places) : std::string();
    };
    table.rows.push_back({ring ? "ring" : "servers",
                          is_table ? "table" : "dense",
                          SizeText(point.bytes()),
                          PercentText(result.share),
                          !is_table                           ? ""
                          : point.ids() == PullPushCase::ZIPF ? "zipf"
                                                              : "uniform",
                          absl::StrCat(point.trainers()),
                          absl::StrCat(ring ? 0 : point.servers()),
                          LinkText(point),
                          result.measured ? FigureText(result.microseconds, 0) : "modelled",
                          figure(result.low, 0),
                          figure(result.high, 0),
                          figure(result.first_microseconds, 0),
                          FigureText(result.modelled.seconds * 1e6, 0),
                          NameOf(result.modelled.limit),
                          figure(result.bytes_per_trainer / 1e6, 3),
                          FigureText(result.modelled.trainer_bytes / 1e6, 3),
                          figure(result.bytes_per_server / 1e6, 3),
                          FigureText(result.modelled.server_bytes / 1e6, 3),
                          figure(result.cpu_us_trainers + result.cpu_us_servers, 0),
                          result.fitted          ? "probe"
                          : !result.measured     ? ""
                          : result.wrong.empty() ? "yes"
                                                 : "NO"});
  }
  page->AddTable(table);
}

}  // namespace

std::string SyncReport(const std::vector<SyncResult>& results, const CostProfile& costs) {
  const std::vector<WayPair> pairs = PairsOf(results);
  const std::vector<std::string> links = LinksOf(results);
  report::Page page("Parameter servers or a ring?");
  for (const std::string& link : links) {
    if (const std::string text = WinnersText(pairs, link); !text.empty()) page.AddParagraph(text);
  }
  const auto num_modelled = std::count_if(results.begin(), results.end(),
                                          [](const auto& result) { return !result.measured; });
  if (num_modelled > 0)
    page.AddNote(absl::StrCat(num_modelled, " of ", results.size(),
                              " points would take over 2 s each. They are modelled, and in no "
                              "comparison."));
  page.AddNote(absl::StrCat(
      "Measured by tandem bench sync on ", costs.machine(), ", ", costs.date(),
      ". One synchronisation begins when the gradients of a step are ready on all trainers. It "
      "ends "
      "when all can use the new weights, or the rows of the next step's ids. Adagrad is part of "
      "it. All members are processes of this one machine and share its cores."));
  page.AddSection("Time");
  for (const std::string& link : links) {
    std::vector<report::Chart> charts;
    for (const auto what : {SyncPoint::DENSE, SyncPoint::TABLE}) {
      const std::vector<WayPair> series = SeriesOf(pairs, what, link);
      if (series.empty()) continue;
      charts.push_back(TimeChart(
          series,
          what == SyncPoint::DENSE
              ? absl::StrCat("Dense weights, ", link)
              : absl::StrCat("A table of ", SizeText(series[0].ring->point.bytes()), ", ", link),
          costs));
    }
    page.AddCharts(charts);
  }
  std::vector<report::Chart> members;
  for (const std::string& link : links) {
    const std::vector<WayPair> series = MemberSeries(pairs, link);
    if (series.empty()) continue;
    const std::vector<report::Chart> charts = MemberCharts(series, link);
    members.insert(members.end(), charts.begin(), charts.end());
  }
  if (!members.empty()) {
    page.AddSection("Bytes and CPU time");
    page.AddCharts(members);
  }
  page.AddSection("The model");
  page.AddParagraph(
      "A time is messages times latency, and the slower of the bytes over the busiest link and the "
      "work of moving them, and the work of updating; but at least the work of all members over "
      "the cores that they share. The coefficients come from the probes alone.");
  if (const report::Chart chart = ModelChart(pairs); !chart.series.empty()) page.AddCharts({chart});
  Machines::Transport last = Machines::SHM;  // of the probes
  for (const SyncResult& result : results) last = std::max(last, WhereOf(result.point).transport);
  report::PageTable coefficients{
      .caption = "Coefficients, fitted on the probes", .columns = {{"coefficient"}}, .rows = {}};
  for (const std::string& line : LinesOf(costs, last)) coefficients.rows.push_back({line});
  page.AddTable(coefficients);
  AddFar(costs, &page);
  AddFigures(results, &page);
  return page.Html();
}

}  // namespace tandem::bench
