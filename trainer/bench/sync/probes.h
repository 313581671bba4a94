// The probes that the model of cost is fitted on, and the model's view of a point.
// Thread rule: the main thread of the command.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "trainer/bench/cost/fit.h"
#include "trainer/bench/sync/result.h"

namespace tandem::bench {

struct ProbePoint {
  Probe probe = Probe::RING_ALONE;
  SyncPoint point;
};
// At most kMaxProbes, in a fixed order. Probes of shared memory come first, because they also
// isolate what no transport changes. `network`: this machine can make capped links.
std::vector<ProbePoint> ProbePoints(bool tcp, bool network);

// Measures the probes and calls `on_probe` after each of them. Empty if a measurement failed
// (Measure).
std::optional<CostProfile> MeasureCosts(const std::vector<ProbePoint>& probes,
                                        const std::function<void(const SyncResult&)>& on_probe,
                                        int* exit_code);

Synchronisation WhatOf(const SyncPoint& point);
Machines WhereOf(const SyncPoint& point);
Cost CostOf(const SyncPoint& point, const CostProfile& costs);

}  // namespace tandem::bench
