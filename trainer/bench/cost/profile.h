// The file of costs: coefficients of the model of cost with the machine and the date that they are
// of (CostProfile in proto/bench.proto), in text format.
// Thread rule: free functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/bench.pb.h"
#include "trainer/bench/cost/cost.h"

namespace tandem::bench {

// Figures of one machine, for who has measured nothing.
CostProfile TypicalCosts();

// The cores that this process may use.
int CoresHere();

// InvalidArgument if the file cannot be read, or a coefficient is missing or no cost.
absl::StatusOr<CostProfile> ReadProfile(const std::string& path);
absl::Status WriteProfile(const CostProfile& profile, const std::string& path);

// The coefficients with their units, one per line: "a server updates rows: 0.25 ns a byte". Leaves
// out transports after `last`.
std::vector<std::string> LinesOf(const CostProfile& profile, Machines::Transport last);

}  // namespace tandem::bench
