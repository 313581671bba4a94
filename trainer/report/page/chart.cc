#include "trainer/report/page/chart.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "trainer/report/page/chart_plot.h"
#include "trainer/report/page/chart_style.h"
#include "trainer/report/page/markup.h"

namespace tandem::report {

namespace {

constexpr double kLine = 18, kLegendMark = 30, kGap = 12;
constexpr char kOutline[] = " stroke=\"currentColor\" stroke-width=\"0.5\"";
constexpr size_t kMostSymbols = 44, kMostOfALine = 52, kMostMarkers = 9, kMostTooltips = 40;

// Chooses at most `most` of `count` things, evenly, the first and the last among them.
bool IsChosen(size_t number, size_t count, size_t most) {
  if (count <= most) return true;
  return number == 0 ||
         number * (most - 1) / (count - 1) != (number - 1) * (most - 1) / (count - 1);
}

// One chart while it is written.
class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart), plot_(chart) {}
  std::string Svg();

 private:
  double X(double x) const { return plot_.X(x); }
  double Y(double y) const { return plot_.Y(y); }
  std::string TooltipOf(const Series& series, const ChartPoint& point) const;
  void Text(double x, double y, const char* anchor, std::string_view text);
  void Frame();
  void XLabels();
  double SlotOfBars() const;
  void Bars();
  size_t StyleOf(size_t number) const;
  void Line(size_t number);
  void Area(const Series& series, size_t number);
  void Level(size_t number);
  void Tooltips(const Series& series);
  void Legend();

  const Chart& chart_;
  const ChartPlot plot_;
  double end_ = 0;  // the lowest y in use
  std::string svg_;
};

std::string Drawing::TooltipOf(const Series& series, const ChartPoint& point) const {
  if (!point.note.empty()) return point.note;
  const auto place = static_cast<size_t>(std::max(point.x, 0.0));
  const std::string where = place < chart_.categories.size()
                                ? chart_.categories[place]
                                : absl::StrCat(chart_.x.title, " ", NumberText(point.x));
  std::string text =
      absl::StrCat(series.name, series.name.empty() ? "" : ", ", where, ": ", NumberText(point.y));
  if (std::isfinite(point.low) && std::isfinite(point.high))
    absl::StrAppend(&text, " (", NumberText(point.low), " to ", NumberText(point.high), ")");
  return text;
}

void Drawing::Text(double x, double y, const char* anchor, std::string_view text) {
  absl::StrAppend(&svg_, "<text x=\"", Place(x), "\" y=\"", Place(y), "\" text-anchor=\"", anchor,
                  "\" fill=\"currentColor\">", Escaped(Fitted(text, kMostOfALine)), "</text>\n");
}

// The levels of the ticks, the axes and their labels.
void Drawing::Frame() {
  Text(4, 14, "start", chart_.y.title);
  for (const Tick& tick : plot_.y_ticks) {
    absl::StrAppend(&svg_, "<path d=\"M", Place(plot_.left), " ", Place(Y(tick.value)), "H",
                    Place(kPlotRight), "\" stroke=\"currentColor\" stroke-opacity=\"0.2\"/>\n");
    Text(plot_.left - 5, Y(tick.value) + 4.5, "end", tick.label);
  }
  absl::StrAppend(&svg_, "<path d=\"M", Place(plot_.left), " ", Place(kPlotTop), "V",
                  Place(kPlotBottom), "H", Place(kPlotRight), "\" stroke=\"currentColor\"/>\n");
  XLabels();
  end_ = kPlotBottom + 2 * kLine;
  Text((plot_.left + kPlotRight) / 2, end_ - 2, "middle", chart_.x.title);
}

void Drawing::XLabels() {
  const size_t count = chart_.categories.size();
  const double room = (kPlotRight - plot_.left) / static_cast<double>(std::max<size_t>(count, 1));
  for (size_t i = 0; i < count; ++i) {
    const auto most = static_cast<size_t>(std::max(room / kSymbolWidth, 3.0));
    Text(X(static_cast<double>(i)), kPlotBottom + 15, "middle", Fitted(chart_.categories[i], most));
  }
  if (count > 0) return;
  for (const Tick& tick : plot_.x_ticks) {
    const double x = X(tick.value),
                 half = kSymbolWidth * static_cast<double>(tick.label.size()) / 2;
    absl::StrAppend(&svg_, "<path d=\"M", Place(x), " ", Place(kPlotBottom),
                    "v4\" stroke=\"currentColor\"/>\n");
    Text(std::min(x, kChartWidth - half), kPlotBottom + 15, "middle", tick.label);
  }
}

// The distance of the nearest two bars. One bar alone is not as wide as the chart.
double Drawing::SlotOfBars() const {
  std::set<double> places;
  for (const Series& series : plot_.series) {
    if (series.kind != SeriesKind::BARS) continue;
    for (const ChartPoint& point : series.points) places.insert(X(point.x));
  }
  double slot = places.size() < 2 ? 60 : 100;
  for (auto next = places.begin(); next != places.end();) {
    const double place = *next++;
    if (next != places.end()) slot = std::min(slot, *next - place);
  }
  return slot;
}

void Drawing::Bars() {
  const auto is_bars = [](const Series& series) { return series.kind == SeriesKind::BARS; };
  const auto num_bars = std::count_if(plot_.series.begin(), plot_.series.end(), is_bars);
  const double slot = SlotOfBars();
  const double width = 0.8 * slot / static_cast<double>(chart_.stacked ? 1 : num_bars);
  const double base = chart_.y.scale == Scale::LOG ? plot_.y_range.low : 0;
  std::map<double, double> sums;  // of the bars so far, by x
  double left = -0.4 * slot;      // from the middle of the slot
  for (size_t number = 0; number < plot_.series.size(); ++number) {
    const Series& series = plot_.series[number];
    if (!is_bars(series)) continue;
    for (const ChartPoint& point : series.points) {
      double& sum = sums[point.x];
      const double low = chart_.stacked && sum > 0 ? sum : base;
      sum = chart_.stacked ? sum + point.y : point.y;
      const double begin = std::max(X(point.x) + left, plot_.left),
                   end = std::min(X(point.x) + left + width, kPlotRight + kGap);
      absl::StrAppend(&svg_, "<rect x=\"", Place(begin), "\" y=\"", Place(Y(sum)), "\" width=\"",
                      Place(end - begin), "\" height=\"", Place(Y(low) - Y(sum)), "\"",
                      FillOf(number), ShadeOf(number), kOutline, "><title>",
                      Escaped(TooltipOf(series, point)), "</title></rect>\n");
    }
    if (!chart_.stacked) left += width;
  }
}

// The number of the series whose looks a series has.
size_t Drawing::StyleOf(size_t number) const {
  return plot_.series[number].kind == SeriesKind::CURVE && number > 0 ? number - 1 : number;
}

void Drawing::Line(size_t number) {
  const Series& series = plot_.series[number];
  const size_t style = StyleOf(number);
  if (series.kind == SeriesKind::BAND) Area(series, number);
  std::string path;
  bool gap = true;
  for (const ChartPoint& point : series.points) {
    if (!std::isnan(point.y))
      absl::StrAppend(&path, gap ? "M" : "L", Place(X(point.x)), " ", Place(Y(point.y)));
    gap = std::isnan(point.y);
  }
  if (!path.empty() && series.kind != SeriesKind::POINTS) {
    absl::StrAppend(&svg_, "<path d=\"", path, "\"", StrokeOf(style), DashesOf(style),
                    " stroke-width=\"1.8\" stroke-linejoin=\"round\"/>\n");
  }
  for (size_t i = 0; i < series.points.size() && series.kind != SeriesKind::CURVE; ++i) {
    const ChartPoint& point = series.points[i];
    const bool marked =
        series.kind == SeriesKind::POINTS || IsChosen(i, series.points.size(), kMostMarkers);
    if (marked && !std::isnan(point.y)) svg_ += MarkerAt(style, X(point.x), Y(point.y));
  }
  Tooltips(series);
}

void Drawing::Area(const Series& series, size_t number) {
  std::vector<ChartPoint> points = series.points;
  std::erase_if(points, [&](const ChartPoint& point) {
    return !IsShown(point.low, chart_.y.scale) || !IsShown(point.high, chart_.y.scale);
  });
  if (points.empty()) return;
  std::string path;
  for (const ChartPoint& point : points)
    absl::StrAppend(&path, path.empty() ? "M" : "L", Place(X(point.x)), " ", Place(Y(point.high)));
  for (auto point = points.rbegin(); point != points.rend(); ++point)
    absl::StrAppend(&path, "L", Place(X(point->x)), " ", Place(Y(point->low)));
  absl::StrAppend(&svg_, "<path d=\"", path, "z\"", FillOf(number), " fill-opacity=\"0.2\"/>\n");
}

void Drawing::Level(size_t number) {
  const Series& series = plot_.series[number];
  if (series.points.empty()) return;
  absl::StrAppend(&svg_, "<path d=\"M", Place(plot_.left), " ", Place(Y(series.points[0].y)), "H",
                  Place(kPlotRight), "\"", StrokeOf(number), DashesOf(number),
                  " stroke-width=\"1.5\"><title>",
                  Escaped(absl::StrCat(series.name, ": ", NumberText(series.points[0].y))),
                  "</title></path>\n");
}

// Unseen circles, large enough for a finger.
void Drawing::Tooltips(const Series& series) {
  for (size_t i = 0; i < series.points.size(); ++i) {
    const ChartPoint& point = series.points[i];
    if (std::isnan(point.y) || !IsChosen(i, series.points.size(), kMostTooltips)) continue;
    absl::StrAppend(&svg_, "<circle cx=\"", Place(X(point.x)), "\" cy=\"", Place(Y(point.y)),
                    "\" r=\"7\" fill=\"transparent\"><title>", Escaped(TooltipOf(series, point)),
                    "</title></circle>\n");
  }
}

void Drawing::Legend() {
  double x = 4;
  if (plot_.series.size() == 1 && plot_.series[0].name.empty()) return;  // the y axis names it
  end_ += 6;
  for (size_t number = 0; number < plot_.series.size(); ++number) {
    const Series& series = plot_.series[number];
    const std::string name = Fitted(series.name, kMostSymbols);
    const double width =
        kLegendMark + kSymbolWidth * static_cast<double>(CountSymbols(name)) + kGap;
    if (number == 0 || x + width > kChartWidth + kGap) x = 4, end_ += kLine;
    const double y = end_ - 4.5;
    if (series.kind == SeriesKind::BARS) {
      absl::StrAppend(&svg_, "<rect x=\"", Place(x + 4), "\" y=\"", Place(y - 5),
                      "\" width=\"16\" height=\"10\"", FillOf(number), ShadeOf(number), kOutline,
                      "/>\n");
    } else {
      if (series.kind != SeriesKind::POINTS) {
        const size_t style = StyleOf(number);
        absl::StrAppend(&svg_, "<path d=\"M", Place(x), " ", Place(y), "h24\"", StrokeOf(style),
                        DashesOf(style), " stroke-width=\"1.8\"/>\n");
      }
      if (series.kind != SeriesKind::LEVEL && series.kind != SeriesKind::CURVE)
        svg_ += MarkerAt(number, x + 12, y);
    }
    Text(x + kLegendMark, end_, "start", name);
    x += width;
  }
}

std::string Drawing::Svg() {
  if (plot_.IsEmpty()) {
    end_ = 3 * kLine;
    Text(kChartWidth / 2, 2 * kLine, "middle", "There is nothing to show.");
  } else {
    Frame();
    Bars();
    for (size_t number = 0; number < plot_.series.size(); ++number) {
      const SeriesKind kind = plot_.series[number].kind;
      if (kind == SeriesKind::LEVEL) Level(number);
      if (kind != SeriesKind::LEVEL && kind != SeriesKind::BARS) Line(number);
    }
    Legend();
  }
  if (plot_.num_left_out > 0) {
    end_ += kLine;
    Text(4, end_, "start",
         absl::StrCat(plot_.num_left_out, plot_.num_left_out == 1 ? " value is" : " values are",
                      " not finite or off the scale."));
  }
  return absl::StrCat("<svg viewBox=\"0 0 ", Place(kChartWidth), " ", Place(end_ + 8),
                      "\" role=\"img\" aria-label=\"", Escaped(chart_.title),
                      "\" font-family=\"sans-serif\" font-size=\"13\" fill=\"none\">\n", svg_,
                      "</svg>\n");
}

}  // namespace

std::string ChartSvg(const Chart& chart) { return Drawing(chart).Svg(); }

}  // namespace tandem::report
