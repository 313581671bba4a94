#include "trainer/report/page/run_charts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/report/page/run_metrics.h"

namespace tandem::report {

namespace {

constexpr size_t kMostKeyMetrics = 5, kMostBars = 24;
constexpr size_t kMostNames = 44;  // symbols of the names of bars, together

Axis StepAxis() { return {.title = "step", .from_zero = true, .whole = true}; }

std::vector<const RunFiles*> RunsOf(const std::vector<RunGroup>& groups) {
  std::vector<const RunFiles*> runs;
  for (const RunGroup& group : groups)
    runs.insert(runs.end(), group.runs.begin(), group.runs.end());
  return runs;
}

// "run1, validation"; "validation" if there is one group.
std::string NameOf(const RunGroup& group, const std::string& what, size_t num_groups) {
  if (num_groups == 1) return what;
  return what.empty() ? group.name : absl::StrCat(group.name, ", ", what);
}

using StepNumber = double RunStep::*;

std::vector<ChartPoint> StepPoints(const RunFiles& run, StepNumber number) {
  std::vector<ChartPoint> points;
  for (const RunStep& step : run.steps) points.push_back({.x = step.step, .y = step.*number});
  return points;
}

std::vector<ChartPoint> MetricPoints(const RunFiles& run, const std::string& metric) {
  std::vector<ChartPoint> points;
  for (const RunEvaluation& evaluation : run.evaluations) {
    for (const std::string& name : {"valid/" + metric, metric}) {
      const auto found = evaluation.metrics.find(name);
      if (found == evaluation.metrics.end()) continue;
      points.push_back({.x = evaluation.step, .y = found->second});
      break;
    }
  }
  return points;
}

// Adds what has at least one point, so that legends name nothing that is not there.
void AddSeries(Series series, Chart* chart) {
  const bool known = std::any_of(series.points.begin(), series.points.end(),
                                 [](const ChartPoint& point) { return !std::isnan(point.y); });
  if (known) chart->series.push_back(std::move(series));
}

void AddMetric(const std::vector<RunGroup>& groups, const std::string& metric,
               const std::string& what, Chart* chart) {
  for (const RunGroup& group : groups) {
    AddSeries(SeriesOf(group, NameOf(group, what, groups.size()),
                       [&](const RunFiles& run) { return MetricPoints(run, metric); }),
              chart);
  }
}

void AddReferences(const std::vector<RunGroup>& groups, const std::string& metric, Chart* chart) {
  if (groups.size() != 1) return;
  for (const auto& [name, value] : ReferencesOf(*groups[0].runs[0], metric)) {
    AddSeries(Series{name, SeriesKind::LEVEL, {ChartPoint{.y = value}}}, chart);
  }
}

Chart LossChart(const std::vector<RunGroup>& groups, const std::vector<std::string>& metrics) {
  const bool has_others = std::any_of(metrics.begin(), metrics.end(), IsLoss);
  Chart chart{.title = has_others ? "Loss" : "Training loss",
              .x = StepAxis(),
              .y = {.title = "loss"},
              .series = {}};
  for (const RunGroup& group : groups) {
    AddSeries(SeriesOf(group,
                       NameOf(group,
                              groups.size() == 1 ? "training, single steps"
                              : has_others       ? "training"
                                                 : "",
                              groups.size()),
                       [](const RunFiles& run) { return StepPoints(run, &RunStep::loss); }),
              &chart);
  }
  const auto train_points = [](const RunFiles& run) {
    std::vector<ChartPoint> points;
    for (const RunEvaluation& evaluation : run.evaluations)
      points.push_back({.x = evaluation.step, .y = evaluation.train_loss});
    return points;
  };
  if (groups.size() == 1)
    AddSeries(SeriesOf(groups[0], "training, mean since the last evaluation", train_points),
              &chart);
  for (const std::string& metric : metrics) {
    if (!IsLoss(metric)) continue;
    AddMetric(groups, metric, "validation " + metric, &chart);
    AddReferences(groups, metric, &chart);
  }
  return chart;
}

// The width of a bar in steps: a multiple of the usual distance of two records, so that bars hold
// equally many.
double StretchOf(const std::vector<RunStep>& steps) {
  std::vector<double> gaps{steps[0].step};
  for (size_t i = 1; i < steps.size(); ++i) gaps.push_back(steps[i].step - steps[i - 1].step);
  std::nth_element(gaps.begin(), gaps.begin() + gaps.size() / 2, gaps.end());
  const double gap = std::max(gaps[gaps.size() / 2], 1.0);
  return gap * std::ceil(std::max(steps.back().step / gap, 1.0) / kMostBars);
}

// The mean of a part over stretches of the run, each a bar.
std::vector<ChartPoint> StretchMeans(const RunFiles& run, StepNumber part) {
  if (run.steps.empty()) return {};
  const double stretch = StretchOf(run.steps);
  std::map<double, std::vector<double>> values;  // by the last step of the stretch
  for (const RunStep& step : run.steps)
    values[stretch * std::ceil(step.step / stretch)].push_back(step.*part);
  std::vector<ChartPoint> points;
  for (const auto& [last, parts] : values)
    points.push_back({.x = last - stretch / 2, .y = SpreadOf(parts).mean});
  return points;
}

// The mean of all logged steps of a group.
double MeanOf(const RunGroup& group, StepNumber part) {
  std::vector<double> values;
  for (const RunFiles* run : group.runs) {
    for (const RunStep& step : run->steps) values.push_back(step.*part);
  }
  return SpreadOf(values).mean;
}

Chart PartsChart(const std::vector<RunGroup>& groups) {
  constexpr std::pair<const char*, StepNumber> kParts[] = {{"compute", &RunStep::compute_ms},
                                                           {"collectives", &RunStep::collective_ms},
                                                           {"pull", &RunStep::pull_ms},
                                                           {"push", &RunStep::push_ms}};
  Chart chart{.title = "Parts of a step",
              .x = StepAxis(),
              .y = {.title = "mean time of a step (ms)", .from_zero = true},
              .series = {}};
  const bool one_run = groups.size() == 1 && groups[0].runs.size() == 1;
  if (!one_run) chart.x.title = "";
  for (const auto& [name, part] : kParts) {
    Series series{name, SeriesKind::BARS, {}};
    if (one_run) series.points = StretchMeans(*groups[0].runs[0], part);
    for (size_t i = 0; !one_run && i < groups.size(); ++i) {
      ChartPoint point{.x = static_cast<double>(i), .y = MeanOf(groups[i], part)};
      point.note = absl::StrCat(groups[i].name, ", ", name, ": ", NumberText(point.y));
      series.points.push_back(std::move(point));
    }
    AddSeries(std::move(series), &chart);
  }
  if (one_run) return chart;
  size_t most_symbols = 0;
  for (const RunGroup& group : groups) {
    most_symbols = std::max(most_symbols, group.name.size());
    chart.categories.push_back(group.name);
  }
  // Names that were cut would look alike.
  if (most_symbols * groups.size() > kMostNames) {
    chart.x.title = "runs in the order of the other charts' names";
    for (size_t i = 0; i < groups.size(); ++i) chart.categories[i] = absl::StrCat(i + 1);
  }
  return chart;
}

Chart StepChart(const std::vector<RunGroup>& groups, const char* title, const char* unit,
                StepNumber number) {
  Chart chart{
      .title = title, .x = StepAxis(), .y = {.title = unit, .from_zero = true}, .series = {}};
  for (const RunGroup& group : groups) {
    AddSeries(SeriesOf(group, NameOf(group, "", groups.size()),
                       [&](const RunFiles& run) { return StepPoints(run, number); }),
              &chart);
  }
  return chart;
}

bool AnyAboveZero(const std::vector<RunGroup>& groups, StepNumber number) {
  for (const RunFiles* run : RunsOf(groups)) {
    for (const RunStep& step : run->steps) {
      if (step.*number > 0) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Chart> QualityCharts(const std::vector<RunGroup>& groups) {
  const std::vector<std::string> metrics = KeyMetrics(RunsOf(groups), kMostKeyMetrics);
  std::vector<Chart> charts{LossChart(groups, metrics)};
  for (const std::string& metric : metrics) {
    if (IsLoss(metric)) continue;
    Chart chart{.title = metric + " of the evaluations",
                .x = StepAxis(),
                .y = {.title = metric + " (validation)", .from_zero = true},
                .series = {}};
    AddMetric(groups, metric, groups.size() == 1 ? "validation" : "", &chart);
    AddReferences(groups, metric, &chart);
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::vector<Chart> SpeedCharts(const std::vector<RunGroup>& groups) {
  const bool text = KeyMetrics(RunsOf(groups), 1) == std::vector<std::string>{"loss"};
  std::vector<Chart> charts;
  if (text && AnyAboveZero(groups, &RunStep::tokens_per_second)) {
    charts.push_back(StepChart(groups, "Throughput", "tokens/s", &RunStep::tokens_per_second));
  } else {
    charts.push_back(StepChart(groups, "Throughput", "samples/s", &RunStep::samples_per_second));
  }
  charts.push_back(PartsChart(groups));
  if (AnyAboveZero(groups, &RunStep::staleness))
    charts.push_back(
        StepChart(groups, "Staleness", "steps that a pull missed", &RunStep::staleness));
  return charts;
}

}  // namespace tandem::report
