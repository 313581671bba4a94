#include "trainer/report/page/run_words.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/count_text.h"
#include "trainer/report/page/axis.h"
#include "trainer/report/page/run_metrics.h"

namespace tandem::report {

namespace {

constexpr size_t kMostFigures = 2;

// "1 step", "2 steps"
std::string Count(double count, const char* noun) {
  return absl::StrCat(CountText(count), " ", noun, count == 1 ? "" : "s");
}

// " (popularity 0.0720, best reachable 0.8254)"
std::string ReferenceWords(const RunFiles& run, const std::string& metric) {
  std::vector<std::string> words;
  for (const auto& [reference, level] : ReferencesOf(run, metric))
    words.push_back(absl::StrCat(reference, " ", MetricText(level)));
  return words.empty() ? "" : absl::StrCat(" (", absl::StrJoin(words, ", "), ")");
}

std::string FigureWords(const RunFiles& run, const std::string& metric) {
  const auto [name, value] = BestFigure(run, metric);
  return absl::StrCat(name, " ", MetricText(value));
}

std::string EndWords(const RunFiles& run) {
  const std::string job = run.Figure("job"), status = run.Figure("status");
  const std::string name = job.empty() ? "The run" : absl::StrCat("The run of ", job);
  if (!run.has_summary) {
    const double last = run.steps.empty() ? run.evaluations.back().step : run.steps.back().step;
    return absl::StrCat(name,
                        " has no summary: it still runs, or it was killed. Its last record is ",
                        "of step ", NumberText(last), ".");
  }
  std::vector<std::string> parts;
  if (const double steps = run.Number("steps"); !std::isnan(steps))
    parts.push_back(Count(steps, "step"));
  if (const double epochs = run.Number("epochs"); !std::isnan(epochs))
    parts.push_back(Count(epochs, "epoch"));
  if (const double seconds = run.Number("seconds"); !std::isnan(seconds))
    parts.push_back(SecondsText(seconds));
  if (const std::string seed = run.Figure("seed"); !seed.empty()) parts.push_back("seed " + seed);
  const std::string end =
      status.empty() ? " ended with no known status" : absl::StrCat(" ", status);
  return absl::StrCat(name, status == "completed" || status.empty() ? "" : " has", end,
                      parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "), ".");
}

std::string BestWords(const RunFiles& run) {
  std::vector<std::string> figures;
  for (const std::string& metric : KeyMetrics({&run}, kMostFigures + 3)) {
    if (!BestFigure(run, metric).first.empty() && figures.size() < kMostFigures)
      figures.push_back(FigureWords(run, metric) + ReferenceWords(run, metric));
  }
  if (figures.empty()) return " It has no evaluation yet.";
  const double step = run.Number("best_step");
  const std::string where = step > 0 ? absl::StrCat(" (step ", NumberText(step), ")") : "";
  return absl::StrCat(" Best evaluation", where, ": ", absl::StrJoin(figures, "; "), ".");
}

std::string SpeedWords(const RunFiles& run) {
  std::vector<std::string> rates;
  for (const auto& [name, unit] :
       {std::pair{"samples_per_second", "samples/s"}, {"tokens_per_second", "tokens/s"}}) {
    const double rate = run.Number(name);
    if (rate > 0) rates.push_back(absl::StrCat(CountText(rate), " ", unit));
  }
  return rates.empty() ? "" : absl::StrCat(" It trained at ", absl::StrJoin(rates, " and "), ".");
}

std::vector<double> FiguresOf(const RunGroup& group, const std::string& metric) {
  std::vector<double> values;
  for (const RunFiles* run : group.runs) values.push_back(BestFigure(*run, metric).second);
  return values;
}

// "test/hr@10 0.0871 ± 0.0012, from 0.0850 to 0.0890"
std::string SpreadWords(const RunGroup& group, const std::string& metric) {
  const RunFiles& first = *group.runs[0];
  if (group.runs.size() == 1) return FigureWords(first, metric);
  const SpreadTexts texts = TextsOf(SpreadOf(FiguresOf(group, metric)));
  return absl::StrCat(BestFigure(first, metric).first, " ", texts.mean, " ± ", texts.deviation,
                      ", from ", texts.low, " to ", texts.high);
}

std::string SeedWords(const RunGroup& group) {
  std::vector<std::string> seeds, figures;
  for (const RunFiles* run : group.runs) seeds.push_back(run->Figure("seed"));
  for (const std::string& metric : KeyMetrics(group.runs, kMostFigures + 3)) {
    if (SpreadOf(FiguresOf(group, metric)).count > 0 && figures.size() < kMostFigures)
      figures.push_back(SpreadWords(group, metric) + ReferenceWords(*group.runs[0], metric));
  }
  return absl::StrCat(group.runs.size(), " runs of ", group.runs[0]->Figure("job"),
                      " differ only in the seed (", absl::StrJoin(seeds, ", "), ")",
                      figures.empty() ? "" : ": mean and standard deviation of ",
                      absl::StrJoin(figures, "; "), ".");
}

// The best and the last of several groups by one metric, if all groups have it.
std::string OrderWords(const std::vector<RunGroup>& groups, const std::string& metric) {
  std::vector<std::pair<Spread, const RunGroup*>> order;
  for (const RunGroup& group : groups)
    order.emplace_back(SpreadOf(FiguresOf(group, metric)), &group);
  const auto lacks = [](const auto& entry) { return entry.first.count == 0; };
  if (std::any_of(order.begin(), order.end(), lacks)) return "";
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return IsLowBest(metric) ? a.first.mean < b.first.mean : a.first.mean > b.first.mean;
  });
  const auto& [best, first] = order.front();
  const auto& [worst, last] = order.back();
  const bool overlap = best.low <= worst.high && worst.low <= best.high;
  return absl::StrCat(" Best is ", first->name, " with ", SpreadWords(*first, metric),
                      ReferenceWords(*first->runs[0], metric), ". Last is ", last->name, " with ",
                      SpreadWords(*last, metric), ".",
                      overlap && best.count + worst.count > 2 ? " Their ranges overlap." : "");
}

std::string WinnerWords(const std::vector<RunGroup>& groups) {
  std::vector<const RunFiles*> runs;
  for (const RunGroup& group : groups)
    runs.insert(runs.end(), group.runs.begin(), group.runs.end());
  for (const std::string& metric : KeyMetrics(runs, kMostFigures + 3)) {
    const std::string words = OrderWords(groups, metric);
    if (!words.empty()) return words;
  }
  return " They have no figure in common.";
}

}  // namespace

std::string RunWords(const RunFiles& run) {
  return absl::StrCat(EndWords(run), BestWords(run), SpeedWords(run));
}

std::string ComparisonWords(const std::vector<RunGroup>& groups) {
  std::vector<std::string> incomplete;
  size_t num_runs = 0;
  for (const RunGroup& group : groups) {
    num_runs += group.runs.size();
    const std::string status = group.runs[0]->Figure("status");  // runs of a group agree
    if (status == "completed") continue;
    incomplete.push_back(
        absl::StrCat(group.name, " (", status.empty() ? "no summary" : status, ")"));
  }
  std::string words = groups.size() == 1
                          ? SeedWords(groups[0])
                          : absl::StrCat(num_runs, " runs are compared.", WinnerWords(groups));
  if (!incomplete.empty())
    absl::StrAppend(&words, " Not complete: ", absl::StrJoin(incomplete, ", "), ".");
  return words;
}

}  // namespace tandem::report
