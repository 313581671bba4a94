// For each table and dense parameter of a job: how long one synchronisation takes by a ring and by
// parameter servers, which way is cheaper, and why.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/bench/cost/cost.h"
#include "trainer/bench/plan/inventory.h"

namespace tandem::bench {

// The plan for one table, or for equal dense parameters.
struct PlanEntry {
  std::string name;
  bool is_table = false;
  int count = 1;     // of parameters
  double bytes = 0;  // of all of them
  double share = 1;  // of the rows, that a trainer uses in a step
  double ring_seconds = 0, server_seconds = 0;
  bool by_servers = false;
  std::string reason;
};

struct Plan {
  std::vector<PlanEntry> entries;
  // The seconds of one step's synchronisation if all goes one way, by the classic hybrid (tables by
  // servers, the rest by a ring), and as planned.
  double all_ring = 0, all_servers = 0, hybrid = 0, planned = 0;
};

// Dense parameters are synchronised together, so each takes its share of their bytes.
Plan MakePlan(const Inventory& inventory, int trainers, int servers, const Machines& machines,
              const CostProfile& costs);

}  // namespace tandem::bench
