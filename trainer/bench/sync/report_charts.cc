#include "trainer/bench/sync/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"

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
  const Synchronisation largest = WhatOf(last);
  const Machines where = WhereOf(last);
  std::vector<ChartPoint> curve;
  for (int i = 0; i < kCurvePoints; ++i) {
    const double x = low * std::pow(high / low, i / (kCurvePoints - 1.0));
    Synchronisation what = largest;
    if (dense) {
      what.bytes = what.bytes_per_trainer = what.distinct_bytes = x;
    } else {
      // Uniform ids: what is missing on one trainer is missing on both with the share's square.
      what.bytes_per_trainer = x * what.bytes;
      what.distinct_bytes = (1 - std::pow(1 - x, what.trainers)) * what.bytes;
    }
    const Cost cost = ring ? RingCost(what, where, costs) : ServerCost(what, where, costs);
    curve.push_back({.x = dense ? x / 1e6 : x * 100, .y = Milliseconds(cost.seconds)});
  }
  return curve;
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

}  // namespace

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
  if (high == 0) return {};
  chart.series.push_back(
      {.name = "as measured", .points = {{.x = low, .y = low}, {.x = high, .y = high}}});
  return chart;
}

}  // namespace tandem::bench
