#include "trainer/report/page/chart.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <regex>

namespace tandem::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string Labels(const AxisRange& range, int most = 5, bool whole = false) {
  std::string labels;
  for (const Tick& tick : Ticks(range, whole, most)) labels += tick.label + " ";
  return labels;
}

Chart ChartOf(Series series) {
  return {.title = "c", .x = {.title = "step"}, .y = {.title = "loss"}, .series = {series}};
}

TEST(AxisTest, TicksAreRoundNumbersAndFew) {
  EXPECT_EQ(Labels({0, 100}), "0 50 100 ");
  EXPECT_EQ(Labels({5, 96}), "20 40 60 80 ");
  EXPECT_EQ(Labels({0, 50000}, 6), "0 10k 20k 30k 40k 50k ");
  EXPECT_EQ(Labels({0.5, 0.502}, 6), "0.5000 0.5005 0.5010 0.5015 0.5020 ");
  EXPECT_EQ(Labels({1e-5, 1.001e-5}, 3), "1e-05 1.0005e-05 1.001e-05 ") << "labels differ";
  EXPECT_EQ(Labels({1, 3}, 5, /*whole=*/true), "1 2 3 ");
  EXPECT_EQ(Labels({4096, 268e6, Scale::LOG}), "10k 100k 1M 10M 100M ");
  EXPECT_EQ(Labels({1, 4, Scale::LOG}), "1 2 ");
  EXPECT_EQ(Labels({1.2, 1.9, Scale::LOG}), "1.2 1.4 1.6 1.8 ");
}

TEST(AxisTest, NoRangeIsAPointAndNoValueBreaksIt) {
  for (const Scale scale : {Scale::LINEAR, Scale::LOG}) {
    for (const std::vector<double>& values : std::vector<std::vector<double>>{
             {}, {kNaN}, {kInfinity, -kInfinity}, {3}, {0}, {-1, 0}, {1e-320}, {-1e300, 1e300}}) {
      const AxisRange range = Rounded(RangeOf({.scale = scale}, values), 5);
      EXPECT_LT(range.low, range.high);
      EXPECT_TRUE(std::isfinite(range.low) && std::isfinite(range.high));
      EXPECT_FALSE(Ticks(range, false, 6).empty());
      EXPECT_LE(Ticks(range, false, 6).size(), 6u);
    }
  }
}

TEST(AxisTest, ARoundedRangeEndsAtTicks) {
  for (const auto& [low, high] : {std::pair(4.72, 5.72), {0.0, 1.0}, {-3.0, 0.1}, {99.0, 101.3}}) {
    const AxisRange range = Rounded({low, high}, 6);
    const std::vector<Tick> ticks = Ticks(range, false, 6);
    EXPECT_NEAR(ticks.front().value, range.low, 1e-9) << low;
    EXPECT_NEAR(ticks.back().value, range.high, 1e-9) << high;
    EXPECT_LE(ticks.size(), 6u);
  }
}

TEST(AxisTest, EveryRangeIsRoundedAndHasTicks) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> number(-10, 10), power(-12, 12);
  for (int i = 0; i < 100000; ++i) {
    // Every second range is one of few digits, such as 1.5 to 2.5.
    double low = number(random), width = std::abs(number(random)) + 0.1;
    if (i % 2 == 0) low = std::round(low * 10) / 10, width = std::ceil(width * 10) / 10;
    const double scale = i % 4 < 2 ? 1 : std::pow(10, power(random));
    const AxisRange range = Rounded({low * scale, (low + width) * scale}, 6);
    EXPECT_LE(range.low, (low + 1e-5 * width) * scale);
    EXPECT_GE(range.high, (low + width - 1e-5 * width) * scale);
    EXPECT_LE(range.high - range.low, 6 * width * scale) << low << " " << width;
    const std::vector<Tick> ticks = Ticks(range, false, 6);
    EXPECT_GE(ticks.size(), 2u);
    EXPECT_LE(ticks.size(), 6u);
    if (HasFailure()) return;
  }
}

TEST(ChartTest, ASmallChartIsThisText) {
  Series series{"run <1>", SeriesKind::LINE, {{.x = 0, .y = 0}, {.x = 10, .y = 1}}};
  const std::string svg = ChartSvg(ChartOf(series));
  EXPECT_EQ(svg, ChartSvg(ChartOf(series)));
  EXPECT_EQ(svg, R"(<svg viewBox="0 0 400 274" role="img" aria-label="c" font-family="sans-serif" )"
                 R"(font-size="13" fill="none">
<text x="4" y="14" text-anchor="start" fill="currentColor">loss</text>
<path d="M30.2 206H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="210.5" text-anchor="end" fill="currentColor">0</text>
<path d="M30.2 170H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="174.5" text-anchor="end" fill="currentColor">0.2</text>
<path d="M30.2 134H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="138.5" text-anchor="end" fill="currentColor">0.4</text>
<path d="M30.2 98H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="102.5" text-anchor="end" fill="currentColor">0.6</text>
<path d="M30.2 62H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="66.5" text-anchor="end" fill="currentColor">0.8</text>
<path d="M30.2 26H386" stroke="currentColor" stroke-opacity="0.2"/>
<text x="25.2" y="30.5" text-anchor="end" fill="currentColor">1.0</text>
<path d="M30.2 26V206H386" stroke="currentColor"/>
<path d="M30.2 206v4" stroke="currentColor"/>
<text x="30.2" y="221" text-anchor="middle" fill="currentColor">0</text>
<path d="M208.1 206v4" stroke="currentColor"/>
<text x="208.1" y="221" text-anchor="middle" fill="currentColor">5</text>
<path d="M386 206v4" stroke="currentColor"/>
<text x="386" y="221" text-anchor="middle" fill="currentColor">10</text>
<text x="208.1" y="240" text-anchor="middle" fill="currentColor">step</text>
<path d="M30.2 206L386 26" class="s0" stroke="#0072b2" stroke-width="1.8" stroke-linejoin="round"/>
<path d="M30.2 206m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z" class="s0" stroke="#0072b2"/>
<path d="M386 26m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z" class="s0" stroke="#0072b2"/>
<circle cx="30.2" cy="206" r="7" fill="transparent"><title>run &lt;1&gt;, step 0: 0</title></circle>
<circle cx="386" cy="26" r="7" fill="transparent"><title>run &lt;1&gt;, step 10: 1</title></circle>
<path d="M4 261.5h24" class="s0" stroke="#0072b2" stroke-width="1.8"/>
<path d="M16 261.5m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z" class="s0" stroke="#0072b2"/>
<text x="34" y="266" text-anchor="start" fill="currentColor">run &lt;1&gt;</text>
</svg>
)");
}

TEST(ChartTest, WithoutAPointItSaysSo) {
  const std::string nothing = "There is nothing to show.";
  EXPECT_NE(ChartSvg(Chart{}).find(nothing), std::string::npos);
  EXPECT_NE(ChartSvg(ChartOf({"empty", SeriesKind::LINE, {}})).find(nothing), std::string::npos);
  const std::string svg =
      ChartSvg(ChartOf({"n", SeriesKind::LINE, {{.x = 1, .y = kNaN}, {.x = kInfinity, .y = 1}}}));
  EXPECT_NE(svg.find(nothing), std::string::npos);
  EXPECT_NE(svg.find("2 values are not finite or off the scale."), std::string::npos);
}

TEST(ChartTest, AMissingValueIsAGapAndIsCounted) {
  const Series series{"n",
                      SeriesKind::LINE,
                      {{.x = 0, .y = 0},
                       {.x = 1, .y = 1},
                       {.x = 2, .y = kNaN},
                       {.x = 3, .y = 1},
                       {.x = 4, .y = 0}}};
  const std::string svg = ChartSvg(ChartOf(series));
  EXPECT_TRUE(std::regex_search(svg, std::regex("d=\"M[0-9. ]+L[0-9. ]+M[0-9. ]+L[0-9. ]+\"")));
  EXPECT_NE(svg.find("1 value is not finite or off the scale."), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(ChartTest, ALogAxisLeavesOutZeroAndBelow) {
  Chart chart =
      ChartOf({"n", SeriesKind::POINTS, {{.x = 0, .y = 1}, {.x = 10, .y = -1}, {10, 10}}});
  chart.x.scale = chart.y.scale = Scale::LOG;
  const std::string svg = ChartSvg(chart);
  EXPECT_NE(svg.find("2 values are not finite"), std::string::npos);
  EXPECT_EQ(CountOf("<circle", svg), 1u);
}

TEST(ChartTest, LinesDifferWithoutColour) {
  Chart chart = ChartOf({"a", SeriesKind::LINE, {{0, 0}, {1, 1}}});
  chart.series.push_back({"b", SeriesKind::LINE, {{0, 1}, {1, 0}}});
  const std::string svg = ChartSvg(chart);
  EXPECT_EQ(CountOf("stroke-dasharray=\"7 3\"", svg), 2u) << "the line and its entry";
  EXPECT_EQ(CountOf("m-3 -3h6v6h-6z", svg), 3u) << "two square markers and their entry";
  EXPECT_EQ(CountOf("a3 3 0 1 0 6 0a3", svg), 3u) << "two circles and their entry";
}

TEST(ChartTest, StackedBarsStandOnEachOther) {
  Chart chart = ChartOf({"a", SeriesKind::BARS, {{0, 3}, {1, 1}}});
  chart.series.push_back({"b", SeriesKind::BARS, {{0, 2}, {1, -1}}});
  chart.categories = {"left", "right"};
  const std::string svg = ChartSvg(chart);
  // From 0 to 5: 36 units of height for each.
  EXPECT_NE(svg.find("y=\"98\" width=\"80\" height=\"108\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("y=\"26\" width=\"80\" height=\"72\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("<title>b, left: 2</title>"), std::string::npos);
  EXPECT_NE(svg.find("1 value is not finite or off the scale."), std::string::npos);
  chart.stacked = false;
  EXPECT_NE(ChartSvg(chart).find("width=\"40\" height=\"180\""), std::string::npos);
}

TEST(ChartTest, ABandShowsItsSpreadInTheTooltip) {
  const std::string svg =
      ChartSvg(ChartOf({"m", SeriesKind::BAND, {{0, 1, 0.5, 2}, {1, 1, 1, 1}}}));
  EXPECT_NE(svg.find("m, step 0: 1 (0.5 to 2)"), std::string::npos);
  EXPECT_NE(svg.find("fill-opacity=\"0.2\""), std::string::npos);
}

TEST(ChartTest, VeryLongLinesKeepTheirPeaks) {
  Series series{"long", SeriesKind::LINE, {}};
  for (int i = 0; i < 100000; ++i)
    series.points.push_back({static_cast<double>(i), i == 54321 ? 1000.0 : i % 7});
  const std::string svg = ChartSvg(ChartOf(series));
  EXPECT_LT(svg.size(), 20000u);
  EXPECT_NE(svg.find(" 26L"), std::string::npos) << "the peak touches the top";
}

}  // namespace
}  // namespace tandem::report
