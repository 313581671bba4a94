// Writes a chart as one SVG element for an HTML page. Reading needs no colour: lines differ in
// their dashes and markers, bars in their shades. The picture scales with its box and is readable
// 328 px wide. Text and axes take the colour of the page's text.
// Thread rule: pure functions. Equal charts give equal text.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "trainer/report/page/axis.h"

namespace tandem::report {

struct ChartPoint {
  double x = 0, y = 0;
  double low = std::numeric_limits<double>::quiet_NaN();  // BAND: the spread around y
  double high = std::numeric_limits<double>::quiet_NaN();
  std::string note = "";  // the tooltip; empty: the numbers
};

enum class SeriesKind {
  LINE,    // joined points; a point without a place makes a gap
  POINTS,  // markers alone
  CURVE,   // a line without markers, drawn like the series before: what a model says of the points
  BAND,    // a line, and the area from low to high
  BARS,    // from 0; on top of the bars of the series before
  LEVEL    // a level of the first point's y, across the chart
};

struct Series {
  std::string name;
  SeriesKind kind = SeriesKind::LINE;
  std::vector<ChartPoint> points = {};  // ascending in x
};

struct Chart {
  std::string title = "";
  Axis x = {}, y = {};
  std::vector<Series> series = {};
  // Names of the places 0, 1, ... on the x axis; empty: the x axis has numbers.
  std::vector<std::string> categories = {};
  bool stacked = true;  // false: bars stand side by side
};

// Points without a place on an axis are left out, and a line below the legend counts them. So are
// bars below 0. Without any point the chart says that there is nothing to show. Of very long lines
// it draws the lowest and the highest point of each short stretch.
std::string ChartSvg(const Chart& chart);

}  // namespace tandem::report
