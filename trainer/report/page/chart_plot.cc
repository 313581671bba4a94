#include "trainer/report/page/chart_plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tandem::report {

namespace {

constexpr int kMostXTicks = 5, kMostYTicks = 6;
constexpr size_t kMostPoints = 400;

bool IsGap(const ChartPoint& point) { return std::isnan(point.y); }

bool IsLine(const Series& series) {
  return series.kind == SeriesKind::LINE || series.kind == SeriesKind::BAND ||
         series.kind == SeriesKind::CURVE;
}

// Keeps the lowest and the highest point of each of kMostPoints / 2 stretches, without gaps.
std::vector<ChartPoint> Thinned(std::vector<ChartPoint> points) {
  if (points.size() <= kMostPoints) return points;
  std::erase_if(points, IsGap);
  std::vector<ChartPoint> kept;
  const size_t num_stretches = std::min(kMostPoints / 2, points.size());
  for (size_t i = 0; i < num_stretches; ++i) {
    const auto first = points.begin() + points.size() * i / num_stretches,
               last = points.begin() + points.size() * (i + 1) / num_stretches;
    const auto below = [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; };
    auto [low, high] = std::minmax_element(first, last, below);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

}  // namespace

ChartPlot::ChartPlot(const Chart& chart) {
  KeepPlaced(chart);
  ChooseRanges(chart);
}

bool ChartPlot::IsEmpty() const {
  return std::all_of(series.begin(), series.end(), [](const Series& one) {
    return std::all_of(one.points.begin(), one.points.end(), IsGap);
  });
}

void ChartPlot::KeepPlaced(const Chart& chart) {
  for (Series kept : chart.series) {
    std::vector<ChartPoint> placed;
    for (ChartPoint& point : kept.points) {
      const bool has_x = kept.kind == SeriesKind::LEVEL || IsShown(point.x, chart.x.scale);
      const bool is_below = kept.kind == SeriesKind::BARS && point.y < 0;
      if (!has_x || is_below || !IsShown(point.y, chart.y.scale)) {
        ++num_left_out;
        if (!has_x || !IsLine(kept)) continue;
        point.y = std::numeric_limits<double>::quiet_NaN();
      }
      placed.push_back(std::move(point));
    }
    kept.points = kept.kind == SeriesKind::BARS ? std::move(placed) : Thinned(std::move(placed));
    series.push_back(std::move(kept));
  }
}

void ChartPlot::ChooseRanges(const Chart& chart) {
  std::vector<double> xs, ys;
  std::map<double, double> sums;  // of bars, by x
  for (const Series& one : series) {
    for (const ChartPoint& point : one.points) {
      if (one.kind != SeriesKind::LEVEL) xs.push_back(point.x);
      ys.insert(ys.end(), {point.y, point.low, point.high});
      if (one.kind == SeriesKind::BARS) sums[point.x] += point.y;
    }
  }
  if (!sums.empty()) ys.push_back(0);
  for (const auto& [x, sum] : sums) {
    if (chart.stacked) ys.push_back(sum);
  }
  // Half a bar on each side.
  for (auto bar = sums.begin(); chart.x.scale == Scale::LINEAR && bar != sums.end();) {
    const double x = bar++->first;
    if (bar == sums.end()) break;
    xs.insert(xs.end(), {x - (bar->first - x) / 2, bar->first + (bar->first - x) / 2});
  }
  x_range = RangeOf(chart.x, xs);
  if (!chart.categories.empty())
    x_range = {.low = -0.5, .high = static_cast<double>(chart.categories.size()) - 0.5};
  y_range = Rounded(RangeOf(chart.y, ys), kMostYTicks);
  x_ticks = Ticks(x_range, chart.x.whole, kMostXTicks);
  y_ticks = Ticks(y_range, chart.y.whole, kMostYTicks);
  size_t most_symbols = 1;
  for (const Tick& tick : y_ticks) most_symbols = std::max(most_symbols, tick.label.size());
  left = 8 + kSymbolWidth * static_cast<double>(most_symbols);
}

}  // namespace tandem::report
