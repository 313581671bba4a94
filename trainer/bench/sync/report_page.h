// The page of `tandem bench sync --report`: the answer in words, then charts, then what the model
// of cost says of larger clusters, then all figures.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/bench.pb.h"
#include "trainer/bench/sync/result.h"

namespace tandem::bench {

std::string SyncReport(const std::vector<SyncResult>& results, const CostProfile& costs);

}  // namespace tandem::bench
