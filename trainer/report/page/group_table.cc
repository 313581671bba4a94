#include "trainer/report/page/group_table.h"

#include "absl/strings/str_cat.h"
#include "trainer/report/page/run_metrics.h"

namespace tandem::report {

namespace {

std::string NameOf(const RunGroup& group) {
  const std::string status = group.runs[0]->Figure("status");  // runs of a group agree
  if (status == "completed") return group.name;
  return absl::StrCat(group.name, " (", status.empty() ? "no summary" : status, ")");
}

// "0.312 ± 0.017"; "0.3120" of a single value; "-" of none.
std::string CellOf(const RunGroup& group, const std::string& metric) {
  std::vector<double> values;
  for (const RunFiles* run : group.runs) values.push_back(BestFigure(*run, metric).second);
  const Spread spread = SpreadOf(values);
  if (spread.count == 0) return "-";
  if (spread.count == 1) return MetricText(spread.mean);
  const SpreadTexts texts = TextsOf(spread);
  return absl::StrCat(texts.mean, " ± ", texts.deviation);
}

// The metric with the split of its figures: "test/hr@10".
std::string HeadingOf(const std::vector<const RunFiles*>& runs, const std::string& metric) {
  for (const RunFiles* run : runs) {
    if (const std::string name = BestFigure(*run, metric).first; !name.empty()) return name;
  }
  return "";
}

}  // namespace

PageTable GroupTable(const std::vector<RunGroup>& groups, size_t most) {
  std::vector<const RunFiles*> runs;
  for (const RunGroup& group : groups)
    runs.insert(runs.end(), group.runs.begin(), group.runs.end());
  PageTable table{"", {{"runs that differ only in the seed"}, {"runs", true}}, {}};
  std::vector<std::string> metrics;
  for (const std::string& metric : KeyMetrics(runs, most)) {
    const std::string heading = HeadingOf(runs, metric);
    if (heading.empty()) continue;
    metrics.push_back(metric);
    table.columns.push_back({heading, true});
  }
  for (const RunGroup& group : groups) {
    std::vector<std::string> row{NameOf(group), absl::StrCat(group.runs.size())};
    for (const std::string& metric : metrics) row.push_back(CellOf(group, metric));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace tandem::report
