// The charts of the page of `tandem bench sync --report`.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/bench.pb.h"
#include "trainer/bench/sync/winners.h"
#include "trainer/report/page/chart.h"

namespace tandem::bench {

// Time over bytes or share: measured points on the model's curves. `series`: SeriesOf, not empty.
report::Chart TimeChart(const std::vector<WayPair>& series, const std::string& title,
                        const CostProfile& costs);

// The dense points of the most bytes over `link` that were measured with most numbers of members.
std::vector<WayPair> MemberSeries(const std::vector<WayPair>& pairs, const std::string& link);
// The bytes of a member, and the CPU time of all, by numbers of members.
std::vector<report::Chart> MemberCharts(const std::vector<WayPair>& series,
                                        const std::string& link);

// All measured points: modelled time over measured time. Without series if nothing was measured.
report::Chart ModelChart(const std::vector<WayPair>& pairs);

}  // namespace tandem::bench
