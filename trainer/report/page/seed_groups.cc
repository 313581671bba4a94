#include "trainer/report/page/seed_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tandem::report {

namespace {

std::vector<std::string> PartsOf(const std::string& folder) {
  std::vector<std::string> parts = absl::StrSplit(folder, '/', absl::SkipEmpty());
  std::erase(parts, ".");
  return parts;
}

// True if the parts at `place` from the front, or from the back, are equal in all paths.
bool IsShared(const std::vector<std::vector<std::string>>& paths, size_t place, bool from_back) {
  const auto part_of = [&](const std::vector<std::string>& path) {
    if (place >= path.size()) return std::string();
    return from_back ? path[path.size() - 1 - place] : path[place];
  };
  return std::all_of(paths.begin(), paths.end(), [&](const std::vector<std::string>& path) {
    return part_of(path) == part_of(paths[0]) && place + 1 < path.size();
  });
}

std::string KeyOf(const RunFiles& run) {
  std::string key;
  for (const auto& [name, text] : run.figures) {
    const bool counts = name == "job" || name == "status" || name == "sparse_rows" ||
                        name == "dense_parameters" || absl::StartsWith(name, "layout.") ||
                        absl::StartsWith(name, "settings.");
    if (counts && name != "settings.seed") absl::StrAppend(&key, name, "=", text, "\n");
  }
  return key;
}

// Rates are compared only at steps that both runs logged, because runs may end early.
bool HaveEqualRates(const RunFiles& a, const RunFiles& b) {
  std::map<double, double> rates;
  for (const RunStep& step : a.steps) rates[step.step] = step.learning_rate;
  return std::all_of(b.steps.begin(), b.steps.end(), [&](const RunStep& step) {
    const auto found = rates.find(step.step);
    return found == rates.end() || found->second == step.learning_rate ||
           (std::isnan(found->second) && std::isnan(step.learning_rate));
  });
}

bool HaveDifferentSeeds(const std::vector<const RunFiles*>& runs) {
  std::set<std::string> seeds;
  for (const RunFiles* run : runs) seeds.insert(run->Figure("seed"));
  return seeds.size() == runs.size() && seeds.count("") == 0;
}

// "dim=32 (5 seeds)" of "dim=32/seed-1", "dim=32/seed-2", ...; else "run1 and 4 more seeds".
std::string GroupName(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> paths;
  for (const std::string& name : names) paths.push_back(PartsOf(name));
  size_t front = 0;
  while (IsShared(paths, front, /*from_back=*/false)) ++front;
  if (front > 0) {
    return absl::StrCat(absl::StrJoin(paths[0].begin(), paths[0].begin() + front, "/"), " (",
                        names.size(), " seeds)");
  }
  return absl::StrCat(names[0], " and ", names.size() - 1, " more seed",
                      names.size() == 2 ? "" : "s");
}

}  // namespace

std::vector<std::string> ShortNames(const std::vector<std::string>& folders) {
  std::vector<std::vector<std::string>> paths;
  for (const std::string& folder : folders) paths.push_back(PartsOf(folder));
  if (paths.size() == 1) return {paths[0].empty() ? folders[0] : paths[0].back()};
  const bool all_equal = std::set(paths.begin(), paths.end()).size() == 1;
  size_t front = 0, back = 0;
  while (!paths.empty() && IsShared(paths, front, /*from_back=*/false)) ++front;
  while (!paths.empty() && !all_equal && IsShared(paths, back, /*from_back=*/true)) ++back;
  std::vector<std::string> names;
  std::map<std::string, int> uses;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::vector<std::string>& path = paths[i];
    const size_t first = std::min(front, path.size()),
                 last = std::max(first, path.size() - std::min(back, path.size()));
    std::string name = absl::StrJoin(path.begin() + first, path.begin() + last, "/");
    if (name.empty()) name = folders[i];
    const int use = ++uses[name];
    names.push_back(use == 1 ? name : absl::StrCat(name, " #", use));
  }
  return names;
}

std::vector<RunGroup> GroupsOf(const std::vector<RunFiles>& runs) {
  std::vector<std::string> folders;
  for (const RunFiles& run : runs) folders.push_back(run.folder);
  const std::vector<std::string> names = ShortNames(folders);
  std::vector<RunGroup> alike;
  std::map<const RunFiles*, std::string> name_of;
  for (size_t i = 0; i < runs.size(); ++i) {
    name_of[&runs[i]] = names[i];
    const auto found = std::find_if(alike.begin(), alike.end(), [&](const RunGroup& group) {
      const RunFiles& first = *group.runs[0];
      return first.has_summary && runs[i].has_summary && KeyOf(first) == KeyOf(runs[i]) &&
             HaveEqualRates(first, runs[i]);
    });
    if (found == alike.end()) {
      alike.push_back({names[i], {&runs[i]}});
    } else {
      found->runs.push_back(&runs[i]);
    }
  }
  std::vector<RunGroup> groups;
  for (RunGroup& group : alike) {
    if (group.runs.size() > 1 && HaveDifferentSeeds(group.runs)) {
      std::vector<std::string> of_runs;
      for (const RunFiles* run : group.runs) of_runs.push_back(name_of[run]);
      group.name = GroupName(of_runs);
      groups.push_back(std::move(group));
      continue;
    }
    for (const RunFiles* run : group.runs) groups.push_back({name_of[run], {run}});
  }
  return groups;
}

Spread SpreadOf(const std::vector<double>& values) {
  Spread spread;
  double sum = 0, squares = 0;
  for (double value : values) {
    if (!std::isfinite(value)) continue;
    ++spread.count;
    sum += value;
    spread.low = std::fmin(spread.low, value);  // ignores a NaN
    spread.high = std::fmax(spread.high, value);
  }
  if (spread.count == 0) return spread;
  spread.mean = sum / static_cast<double>(spread.count);
  for (double value : values) {
    if (std::isfinite(value)) squares += (value - spread.mean) * (value - spread.mean);
  }
  if (spread.count > 1)
    spread.deviation = std::sqrt(squares / static_cast<double>(spread.count - 1));
  return spread;
}

Series SeriesOf(const RunGroup& group, const std::string& name,
                const std::function<std::vector<ChartPoint>(const RunFiles&)>& points_of) {
  Series series{name, SeriesKind::LINE, {}};
  if (group.runs.size() == 1) {
    series.points = points_of(*group.runs[0]);
    return series;
  }
  series.kind = SeriesKind::BAND;
  std::map<double, std::vector<double>> values;  // by x
  for (const RunFiles* run : group.runs) {
    for (const ChartPoint& point : points_of(*run)) {
      if (std::isfinite(point.y)) values[point.x].push_back(point.y);
    }
  }
  for (const auto& [x, ys] : values) {
    if (ys.size() != group.runs.size()) continue;
    const Spread spread = SpreadOf(ys);
    series.points.push_back({.x = x, .y = spread.mean, .low = spread.low, .high = spread.high});
  }
  return series;
}

}  // namespace tandem::report
