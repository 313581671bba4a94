// A chart's content and its places: the points that have a place, the ranges of the axes, and the
// coordinates in units of the SVG's view box.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/report/page/chart.h"

namespace tandem::report {

// Lengths in units of the view box. At 328 px, a unit is 0.82 px.
inline constexpr double kChartWidth = 400, kPlotHeight = 180, kPlotTop = 26, kPlotRight = 386,
                        kPlotBottom = kPlotTop + kPlotHeight;
inline constexpr double kSymbolWidth = 7.4;  // on average, of 13 units of height

struct ChartPlot {
  explicit ChartPlot(const Chart& chart);

  double X(double x) const { return left + (kPlotRight - left) * x_range.Fraction(x); }
  double Y(double y) const { return kPlotBottom - kPlotHeight * y_range.Fraction(y); }
  bool IsEmpty() const;

  // The chart's series, without points that have no place. A y that is NaN is a gap of a line.
  std::vector<Series> series;
  size_t num_left_out = 0;
  AxisRange x_range, y_range;
  std::vector<Tick> x_ticks, y_ticks;
  double left = 0;  // x of the y axis

 private:
  void KeepPlaced(const Chart& chart);
  void ChooseRanges(const Chart& chart);
};

}  // namespace tandem::report
