// Fits the model of cost to probes: at most kMaxProbes fixed points that the sweep's figures do not
// enter. Each coefficient comes from the probes that isolate the coefficient.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "proto/bench.pb.h"
#include "trainer/bench/cost/cost.h"

namespace tandem::bench {

inline constexpr int kMaxProbes = 12;

// The part of a synchronisation that a probe isolates.
enum class Probe {
  RING_ALONE,    // one trainer, which only updates
  RING_SMALL,    // few bytes: messages
  RING_LARGE,    // many bytes: moving them
  SERVER_SMALL,  // few bytes: calls
  SERVER_LARGE,  // many bytes of long rows
  SERVER_ONE,    // the same from one trainer: less moved for the same update
  SERVER_ROWS,   // many bytes of short rows
};

struct ProbeFigures {
  Probe probe = Probe::RING_ALONE;
  Machines::Transport transport = Machines::SHM;
  Synchronisation what;
  double seconds = 0;                                // of a synchronisation
  double work_of_trainers = 0, work_of_servers = 0;  // CPU seconds
};

// Coefficients without a probe are typical ones. A network without a probe of the coefficient costs
// as much more than TCP as is typical.
CostProfile Fit(const std::vector<ProbeFigures>& probes, const CostProfile& typical);

}  // namespace tandem::bench
