// The commit of a worker's tables, in every mode, and the pushes of the modes that apply each
// trainer's commit by itself. Such a push is checked and acknowledged, but kept out of the tables
// until its trainer commits. All gradients in a table are
// one update, so pushes of several trainers cannot share a table. ConsistencyController decides a
// push's step and drops repetitions.
// Thread rule: one thread at a time; StepPushes are immutable and workers read them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "ps/server/table_workers.h"
#include "ps/wire/step.h"

namespace tandem::ps {

struct HeldPush {
  uint32_t slice = 0;
  uint64_t order = 0;  // order within the slice
  TableWorkers::Shares shares;
  std::shared_ptr<const void> owner;  // keeps the gradients alive
};
using StepPushes = std::vector<std::shared_ptr<const HeldPush>>;

class HeldPushes {
 public:
  void Add(uint32_t trainer, uint64_t step, HeldPush push);
  StepPushes Find(uint32_t trainer, uint64_t step) const;
  StepPushes Take(uint32_t trainer, uint64_t step);

 private:
  std::map<std::pair<uint32_t, uint64_t>, StepPushes> by_step_;
};

// Adds the worker's share of the pushes to the pending step of its tables. Runs on the worker.
// REQUIRES: nothing is pending in the tables.
void AccumulateHeld(const StepPushes& pushes, TableWorker& worker);
// Returns the squared norm of the worker's share of the pushes. Leaves nothing pending.
absl::uint128 NormOfHeld(const StepPushes& pushes, TableWorker& worker);
// Applies the pending gradients of the worker's tables, or drops them if the step is skipped.
// Returns OutOfRange if Table::overflow does; the tables are then no longer usable.
absl::Status CommitPending(const CommitArgs& args, TableWorker& worker);

}  // namespace tandem::ps
