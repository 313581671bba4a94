// The groups of several runs in one table: a line for each group, with the mean and the standard
// deviation of its key metrics. Pages and terminals show the same table.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "trainer/report/page/page.h"
#include "trainer/report/page/seed_groups.h"

namespace tandem::report {

// Columns: the group, its number of runs, and for each of at most `most` metrics "0.31 ± 0.02",
// the mean and the deviation of the best evaluations. A group that did not complete is named so.
PageTable GroupTable(const std::vector<RunGroup>& groups, size_t most);

}  // namespace tandem::report
