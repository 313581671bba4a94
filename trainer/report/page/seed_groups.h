// Runs beside each other: their short names, which of them differ in the seed alone, and the mean
// and the spread of what such runs reached.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trainer/report/page/chart.h"
#include "trainer/report/page/run_files.h"

namespace tandem::report {

// The parts of folders that differ: without the leading and the trailing parts that all of them
// share.
// {"out/a/seed1", "out/b/seed1"} -> {"a", "b"}. Equal folders get "#2", "#3".
// One folder keeps its last part.
std::vector<std::string> ShortNames(const std::vector<std::string>& folders);

// One run, or runs that differ in the seed alone: a line of a chart.
struct RunGroup {
  std::string name;
  std::vector<const RunFiles*> runs;  // by ascending place among the page's runs
};

// Runs differ in the seed alone if their job, status, layout, sizes, "settings" (if the summary has
// any) and learning rates at equal steps are equal. Two of them with one seed differ in something
// that the files do not say, and none of the runs like them is grouped.
// REQUIRES: the runs outlive the groups.
std::vector<RunGroup> GroupsOf(const std::vector<RunFiles>& runs);

struct Spread {
  size_t count = 0;  // of finite values
  double mean = kUnknown, low = kUnknown, high = kUnknown;
  double deviation = kUnknown;  // of the sample (n - 1); kUnknown for one value
};
Spread SpreadOf(const std::vector<double>& values);

// One run: its points. Several: the mean, lowest and highest y of the x values that all runs have.
// `points_of` gives a run's points, ascending in x.
Series SeriesOf(const RunGroup& group, const std::string& name,
                const std::function<std::vector<ChartPoint>(const RunFiles&)>& points_of);

}  // namespace tandem::report
