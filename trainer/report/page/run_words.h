// The first paragraph of a page about runs: what they reached, in words. Its figures are those of
// the page's tables.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/page/seed_groups.h"

namespace tandem::report {

// One run: its status, its steps, its best figures beside their references, and its speed.
std::string RunWords(const RunFiles& run);

// Several runs: each group's mean and standard deviation, or the best of the groups, then the runs
// that are not complete.
std::string ComparisonWords(const std::vector<RunGroup>& groups);

}  // namespace tandem::report
