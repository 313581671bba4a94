// The charts of a page about runs. A group of one run is a line, a group of several seeds is the
// line of their mean with a band from the lowest to the highest.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "trainer/report/page/chart.h"
#include "trainer/report/page/seed_groups.h"

namespace tandem::report {

// Losses and key metrics over steps, with their references if there is one group.
std::vector<Chart> QualityCharts(const std::vector<RunGroup>& groups);
// Throughput, the parts of a step, and the staleness if there is any.
std::vector<Chart> SpeedCharts(const std::vector<RunGroup>& groups);

}  // namespace tandem::report
