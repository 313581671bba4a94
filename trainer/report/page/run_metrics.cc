#include "trainer/report/page/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "trainer/report/page/axis.h"

namespace tandem::report {

namespace {

constexpr const char* kFirst[] = {"hr@10",           "ndcg@10",   "mrr", "sampled_hr@10",
                                  "sampled_ndcg@10", "text_loss", "loss"};

// "valid/hr@10" -> "hr@10"
std::string WithoutSplit(const std::string& metric) { return metric.substr(metric.find('/') + 1); }

}  // namespace

std::vector<std::string> KeyMetrics(const std::vector<const RunFiles*>& runs, size_t most) {
  std::set<std::string> names;
  for (const RunFiles* run : runs) {
    for (const auto& [name, value] : run->metrics) names.insert(WithoutSplit(name));
    for (const RunEvaluation& evaluation : run->evaluations) {
      for (const auto& [name, value] : evaluation.metrics) names.insert(WithoutSplit(name));
    }
  }
  std::vector<std::string> chosen;
  for (const char* name : kFirst) {
    if (names.erase(name) > 0) chosen.push_back(name);
  }
  if (chosen.empty()) chosen.assign(names.begin(), names.end());
  if (chosen.size() > most) chosen.resize(most);
  return chosen;
}

bool IsLoss(const std::string& metric) { return absl::EndsWith(metric, "loss"); }

bool IsLowBest(const std::string& metric) {
  return IsLoss(metric) || absl::EndsWith(metric, "rank") || absl::EndsWith(metric, "perplexity");
}

std::pair<std::string, double> BestFigure(const RunFiles& run, const std::string& metric) {
  for (const char* split : {"test/", "valid/", ""}) {
    const auto found = run.metrics.find(split + metric);
    if (found != run.metrics.end()) return *found;
  }
  return {"", kUnknown};
}

std::vector<std::pair<std::string, double>> ReferencesOf(const RunFiles& run,
                                                         const std::string& metric) {
  std::vector<std::pair<std::string, double>> found;
  for (const auto& [name, metrics] : run.references) {
    for (const auto& [reference, value] : metrics) {
      if (WithoutSplit(reference) != metric) continue;
      found.emplace_back(name, value);
      break;
    }
  }
  return found;
}

std::string MetricText(double value) {
  const bool fits = value == 0 || (std::abs(value) >= 0.001 && std::abs(value) < 1e6);
  return fits ? absl::StrFormat("%.4f", value) : NumberText(value);
}

SpreadTexts TextsOf(const Spread& spread) {
  int places = spread.deviation == 0 && spread.mean == std::floor(spread.mean) ? 0 : 4;
  if (spread.deviation > 0)
    places = static_cast<int>(std::clamp(1 - std::floor(std::log10(spread.deviation)), 0.0, 9.0));
  const auto text = [places](double value) {
    return std::isfinite(value) ? absl::StrFormat("%.*f", places, value) : "-";
  };
  return {text(spread.mean), text(spread.deviation), text(spread.low), text(spread.high)};
}

std::string SecondsText(double seconds) {
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15) + 0.5);
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d min", whole / 3600, whole / 60 % 60);
}

}  // namespace tandem::report
