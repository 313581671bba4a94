#include "trainer/report/page/run_page.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "trainer/report/page/group_table.h"
#include "trainer/report/page/page.h"
#include "trainer/report/page/run_charts.h"
#include "trainer/report/page/run_metrics.h"
#include "trainer/report/page/run_words.h"
#include "trainer/report/page/seed_groups.h"

namespace tandem::report {

namespace {

constexpr size_t kMostOfGroups = 4;  // metrics
constexpr char kSettings[] = "settings.";

// "dp 2, tp 1, pp 1, zero 0, 2 parameter servers"
std::string LayoutText(const RunFiles& run) {
  std::string text;
  for (const char* axis : {"dp", "tp", "pp", "zero"}) {
    const std::string size = run.Figure(absl::StrCat("layout.", axis));
    if (!size.empty()) absl::StrAppend(&text, text.empty() ? "" : ", ", axis, " ", size);
  }
  const std::string servers = run.Figure("layout.ps");
  if (servers.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ", ", servers == "0" ? "no" : servers,
                      " parameter server", servers == "1" ? "" : "s");
}

bool IsEnvironment(const std::string& figure) {
  return figure == "version" || absl::StartsWith(figure, "environment.");
}

bool IsSetting(const std::string& figure) { return absl::StartsWith(figure, kSettings); }

// The figures of the runs whose names `takes` accepts, in the order of their first appearance.
std::vector<std::string> FigureNames(const std::vector<const RunFiles*>& runs,
                                     bool (*takes)(const std::string&)) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const RunFiles* run : runs) {
    for (const auto& [name, text] : run->figures) {
      if (takes(name) && known.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

// A table with a column for each run.
class RunTable {
 public:
  RunTable(const std::vector<const RunFiles*>& runs, const char* heading, bool numbers)
      : runs_(runs) {
    std::vector<std::string> folders;
    for (const RunFiles* run : runs) folders.push_back(run->folder);
    table_.columns.push_back({heading});
    for (const std::string& name : ShortNames(folders)) table_.columns.push_back({name, numbers});
  }

  template <typename TextOf>
  void Add(const std::string& heading, const TextOf& text_of) {
    std::vector<std::string> row{heading};
    for (const RunFiles* run : runs_) {
      const std::string text = text_of(*run);
      row.push_back(text.empty() ? "-" : text);
    }
    table_.rows.push_back(std::move(row));
  }
  void AddFigure(const std::string& heading, const std::string& figure) {
    Add(heading, [&](const RunFiles& run) { return run.Figure(figure); });
  }
  const PageTable& table() const { return table_; }

 private:
  const std::vector<const RunFiles*> runs_;
  PageTable table_;
};

void AddEnvironment(const std::vector<const RunFiles*>& runs, Page* page) {
  page->AddSection("Layout and environment");
  RunTable table(runs, "", /*numbers=*/false);
  table.Add("folder", [](const RunFiles& run) { return run.folder; });
  table.AddFigure("job", "job");
  table.AddFigure("seed", "seed");
  table.AddFigure("status", "status");
  table.Add("layout", LayoutText);
  for (const std::string& name : FigureNames(runs, IsEnvironment))
    table.AddFigure(std::string(absl::StripPrefix(name, "environment.")), name);
  page->AddTable(table.table());
}

// The settings of one run, or those in which several differ.
void AddSettings(const std::vector<const RunFiles*>& runs, Page* page) {
  const std::vector<std::string> names = FigureNames(runs, IsSetting);
  if (names.empty()) return;  // older programs wrote none
  RunTable table(runs, "setting", /*numbers=*/false);
  size_t num_equal = 0;
  for (const std::string& name : names) {
    const bool equal =
        runs.size() > 1 && std::all_of(runs.begin(), runs.end(), [&](const RunFiles* run) {
          return run->Figure(name) == runs[0]->Figure(name);
        });
    num_equal += equal ? 1 : 0;
    if (!equal) table.AddFigure(std::string(absl::StripPrefix(name, kSettings)), name);
  }
  page->AddSection(runs.size() == 1 ? "Settings" : "Settings that differ");
  if (num_equal < names.size()) page->AddTable(table.table());
  if (num_equal > 0)
    page->AddNote(absl::StrCat("Settings that all runs have in common: ", num_equal, "."));
}

void AddFigures(const std::vector<const RunFiles*>& runs, Page* page) {
  page->AddSection("Figures of summary.json");
  RunTable table(runs, "figure", /*numbers=*/true);
  const std::vector<std::string> names = FigureNames(
      runs, [](const std::string& name) { return !IsEnvironment(name) && !IsSetting(name); });
  for (const std::string& name : names) table.AddFigure(name, name);
  if (names.empty()) {
    page->AddParagraph("There is no summary.");
  } else {
    page->AddTable(table.table());
  }
}

void AddSpreadTable(const RunGroup& group, Page* page) {
  PageTable table{
      absl::StrCat(group.name, ": mean and standard deviation over ", group.runs.size(), " seeds"),
      {{"figure"},
       {"mean", true},
       {"standard deviation", true},
       {"lowest", true},
       {"highest", true}},
      {}};
  std::vector<std::string> names;
  for (const auto& [metric, value] : group.runs[0]->metrics) names.push_back("metrics." + metric);
  for (const char* name : {"best_epoch", "seconds", "samples_per_second", "tokens_per_second"})
    names.push_back(name);
  for (const std::string& name : names) {
    std::vector<double> values;
    for (const RunFiles* run : group.runs) values.push_back(run->Number(name));
    const Spread spread = SpreadOf(values);
    if (spread.count < group.runs.size()) continue;
    table.rows.push_back({absl::StartsWith(name, "metrics.") ? name.substr(8) : name});
    const SpreadTexts texts = TextsOf(spread);
    for (const std::string& text : {texts.mean, texts.deviation, texts.low, texts.high})
      table.rows.back().push_back(text);
  }
  page->AddTable(table);
}

void AddGroups(const std::vector<RunGroup>& groups, Page* page) {
  const bool has_seeds = std::any_of(groups.begin(), groups.end(),
                                     [](const RunGroup& group) { return group.runs.size() > 1; });
  if (groups.size() == 1 && !has_seeds) return;
  page->AddSection(has_seeds ? "Seeds" : "Side by side");
  if (groups.size() > 1) page->AddTable(GroupTable(groups, kMostOfGroups));
  for (const RunGroup& group : groups) {
    if (group.runs.size() > 1) AddSpreadTable(group, page);
  }
  if (!has_seeds) return;
  page->AddNote(
      "The standard deviation is that of a sample (n - 1). Runs count as differing only in the "
      "seed if their job, layout, sizes, settings and learning rates are equal.");
}

void AddLacks(const std::vector<const RunFiles*>& runs, Page* page) {
  size_t num_skipped = 0, num_unread = 0;
  for (const RunFiles* run : runs) {
    num_unread += run->num_unread_lines;
    num_skipped += std::count_if(run->steps.begin(), run->steps.end(),
                                 [](const RunStep& step) { return step.skipped; });
  }
  if (num_skipped > 0) {
    page->AddNote(absl::StrCat("Logged steps that were left out, because the loss or a gradient ",
                               "was not finite: ", num_skipped, "."));
  }
  if (num_unread > 0)
    page->AddNote(absl::StrCat("Lines of the run's files that are no records: ", num_unread, "."));
}

std::string TitleOf(const std::vector<RunFiles>& runs) {
  std::set<std::string> jobs;
  for (const RunFiles& run : runs) jobs.insert(run.Figure("job"));
  const std::string job = jobs.size() == 1 && !jobs.begin()->empty() ? *jobs.begin() : "";
  if (runs.size() > 1) return absl::StrCat(runs.size(), " runs", job.empty() ? "" : " of " + job);
  const std::string name = ShortNames({runs[0].folder})[0];
  return job.empty() ? "Run " + name : absl::StrCat(job, " (", name, ")");
}

}  // namespace

std::string RunPage(const std::vector<RunFiles>& runs) {
  TANDEM_CHECK(!runs.empty());
  const std::vector<RunGroup> groups = GroupsOf(runs);
  std::vector<const RunFiles*> all;
  for (const RunFiles& run : runs) all.push_back(&run);
  Page page(TitleOf(runs));
  page.AddParagraph(runs.size() == 1 ? RunWords(runs[0]) : ComparisonWords(groups));
  page.AddSection("Losses and metrics");
  page.AddCharts(QualityCharts(groups));
  const bool has_band = std::any_of(groups.begin(), groups.end(),
                                    [](const RunGroup& group) { return group.runs.size() > 1; });
  if (has_band)
    page.AddNote(
        "A line is the mean of the seeds, its band reaches from the lowest to the highest.");
  if (groups.size() == 1 && !runs[0].references.empty()) {
    page.AddNote(
        "Lines without markers are references of the test split: models that learn nothing, and "
        "the best that any "
        "model can reach.");
  }
  page.AddSection("Speed");
  page.AddCharts(SpeedCharts(groups));
  AddLacks(all, &page);
  AddGroups(groups, &page);
  AddEnvironment(all, &page);
  AddSettings(all, &page);
  AddFigures(all, &page);
  return page.Html();
}

}  // namespace tandem::report
