#include "trainer/bench/sync/report_page.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"
#include "trainer/bench/sync/winners.h"
#include "trainer/report/page/page.h"

namespace tandem::bench {

namespace {

using report::Chart;
using report::ChartPoint;
using report::Series;
using report::SeriesKind;

constexpr int kCurvePoints = 24;

double Milliseconds(double seconds) { return seconds * 1e3; }

// The model along one dimension of a point: bytes of dense weights, or the share of a table.
std::vector<ChartPoint> CurveOf(const SyncPoint& first, const SyncPoint& last, bool ring,
                                const CostProfile& costs) {
  const bool dense = first.what() == SyncPoint::DENSE;
  const auto [low, high] =
      dense ? std::pair(static_cast<double>(first.bytes()), static_cast<double>(last.bytes()))
            : std::pair(first.share(), last.share());
  std::vector<ChartPoint> curve;
  for (int i = 0; i < kCurvePoints; ++i) {
    const double x = low * std::pow(high / low, i / (kCurvePoints - 1.0));
    Synchronisation what = WhatOf(last);
    if (dense) {
      what.bytes = what.bytes_per_trainer = what.distinct_bytes = x;
    } else {
      // Uniform ids: what is missing on one trainer is missing on both with the share's square.
      what.bytes_per_trainer = x * what.bytes;
      what.distinct_bytes = (1 - std::pow(1 - x, what.trainers)) * what.bytes;
    }
    const Machines where = WhereOf(last);
    const Cost cost = ring ? RingCost(what, where, costs) : ServerCost(what, where, costs);
    curve.push_back({.x = dense ? x / 1e6 : x * 100, .y = Milliseconds(cost.seconds)});
  }
  return curve;
}

// Time over bytes or share: measured points on the model's curves.
Chart TimeChart(const std::vector<WayPair>& series, const std::string& title,
                const CostProfile& costs) {
  const bool dense = series[0].ring->point.what() == SyncPoint::DENSE;
  Chart chart{
      .title = title,
      .x = {.title = dense ? "weights (MB)" : "rows of a step (%)", .scale = report::Scale::LOG},
      .y = {.title = "one synchronisation (ms)", .scale = report::Scale::LOG}};
  for (const bool ring : {true, false}) {
    Series points{.name = ring ? "ring" : "servers", .kind = SeriesKind::POINTS};
    for (const WayPair& pair : series) {
      const SyncResult& result = ring ? *pair.ring : *pair.servers;
      points.points.push_back(
          {.x = dense ? static_cast<double>(result.point.bytes()) / 1e6 : result.share * 100,
           .y = result.microseconds / 1e3,
           .note =
               absl::StrFormat("%s: %.3g ms, %.3g to %.3g", NameOf(result.point),
                               result.microseconds / 1e3, result.low / 1e3, result.high / 1e3)});
    }
    chart.series.push_back(std::move(points));
    chart.series.push_back(
        {.name = ring ? "ring, model" : "servers, model",
         .kind = SeriesKind::CURVE,
         .points = CurveOf(series.front().ring->point, series.back().ring->point, ring, costs)});
  }
  return chart;
}

// The dense points of the most bytes over `link` that were measured with most numbers of members.
std::vector<WayPair> MemberSeries(const std::vector<WayPair>& pairs, const std::string& link) {
  std::vector<WayPair> best;
  for (const uint64_t bytes : {uint64_t{16} << 20, uint64_t{1} << 20}) {
    std::vector<WayPair> series;
    for (const WayPair& pair : pairs) {
      const SyncPoint& point = pair.ring->point;
      if (pair.measured() && point.what() == SyncPoint::DENSE && point.bytes() == bytes &&
          LinkText(point) == link)
        series.push_back(pair);
    }
    if (series.size() > best.size()) best = std::move(series);
  }
  return best;
}

// Bars by trainers and servers. `values` gives the values of `names` for one pair.
Chart MemberChart(const std::vector<WayPair>& series, const std::string& title,
                  const std::string& unit, const std::vector<std::string>& names,
                  const std::function<std::vector<double>(const WayPair&)>& values) {
  Chart chart{.title = title,
              .x = {.title = "trainers + servers"},
              .y = {.title = unit, .from_zero = true},
              .stacked = false};
  for (const std::string& name : names)
    chart.series.push_back({.name = name, .kind = SeriesKind::BARS});
  for (size_t i = 0; i < series.size(); ++i) {
    const SyncPoint& point = series[i].ring->point;
    chart.categories.push_back(absl::StrCat(point.trainers(), "+", point.servers()));
    const std::vector<double> of_pair = values(series[i]);
    for (size_t s = 0; s < names.size(); ++s)
      chart.series[s].points.push_back({.x = static_cast<double>(i), .y = of_pair[s]});
  }
  return chart;
}

std::vector<Chart> MemberCharts(const std::vector<WayPair>& series, const std::string& link) {
  const std::string of =
      absl::StrCat(" dense ", SizeText(series[0].ring->point.bytes()), ", ", link);
  return {MemberChart(series, absl::StrCat("Bytes of a member:", of), "MB sent and received",
                      {"ring: trainer", "servers: trainer", "servers: server"},
                      [](const WayPair& pair) -> std::vector<double> {
                        return {pair.ring->bytes_per_trainer / 1e6,
                                pair.servers->bytes_per_trainer / 1e6,
                                pair.servers->bytes_per_server / 1e6};
                      }),
          MemberChart(series, absl::StrCat("CPU time of all members:", of), "ms a synchronisation",
                      {"ring: trainers", "servers: trainers", "servers: servers"},
                      [](const WayPair& pair) -> std::vector<double> {
                        return {pair.ring->cpu_us_trainers / 1e3,
                                pair.servers->cpu_us_trainers / 1e3,
                                pair.servers->cpu_us_servers / 1e3};
                      })};
}

Chart ModelChart(const std::vector<WayPair>& pairs) {
  Chart chart{.title = "The model beside the measurement, all points",
              .x = {.title = "measured (ms)", .scale = report::Scale::LOG},
              .y = {.title = "modelled (ms)", .scale = report::Scale::LOG}};
  double low = 1e9, high = 0;
  for (const bool ring : {true, false}) {
    Series series{.name = ring ? "ring" : "servers", .kind = SeriesKind::POINTS};
    for (const WayPair& pair : pairs) {
      const SyncResult& result = ring ? *pair.ring : *pair.servers;
      if (!result.measured) continue;
      series.points.push_back({.x = result.microseconds / 1e3,
                               .y = Milliseconds(result.modelled.seconds),
                               .note = NameOf(result.point)});
      low = std::min(low, result.microseconds / 1e3);
      high = std::max(high, result.microseconds / 1e3);
    }
    std::sort(series.points.begin(), series.points.end(),
              [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back(
      {.name = "as measured", .points = {{.x = low, .y = low}, {.x = high, .y = high}}});
  return chart;
}

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
      "every %d workers; %d cores of a machine share the moving and updating. Coefficients of this "
      "machine, without contention inside the network.",
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
  std::vector<Chart> charts;
  for (const double gigabits : {10.0, 25.0, 100.0, 400.0}) {
    Chart chart{.title = absl::StrFormat("%.0f Gb/s: modelled, not measured", gigabits),
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
        const double time = Milliseconds(all[i]->seconds);
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
  page.AddNote(absl::StrCat(
      "Measured by tandem bench sync on ", costs.machine(), ", ", costs.date(),
      ". One synchronisation begins when the gradients of a step are ready on all trainers. It "
      "ends "
      "when all can use the new weights, or the rows of the next step's ids. Adagrad is part of "
      "it. All members are processes of this one machine and share its cores."));
  page.AddSection("Time");
  for (const std::string& link : links) {
    std::vector<Chart> charts;
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
  page.AddSection("Bytes and CPU time");
  for (const std::string& link : links) {
    const std::vector<WayPair> series = MemberSeries(pairs, link);
    if (!series.empty()) page.AddCharts(MemberCharts(series, link));
  }
  page.AddSection("The model");
  page.AddParagraph(
      "A time is messages times latency, and the slower of the bytes over the busiest link and the "
      "work of moving them, and the work of updating; but at least the work of all members over "
      "the cores that they share. The coefficients come from the probes alone.");
  page.AddCharts({ModelChart(pairs)});
  report::PageTable coefficients{
      .caption = "Coefficients, fitted on the probes", .columns = {{"coefficient"}}, .rows = {}};
  for (const std::string& line : LinesOf(costs, Machines::NETWORK))
    coefficients.rows.push_back({line});
  page.AddTable(coefficients);
  AddFar(costs, &page);
  AddFigures(results, &page);
  return page.Html();
}

}  // namespace tandem::bench
