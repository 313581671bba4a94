// Pushes of the modes that apply each trainer's commit by itself: checked and acknowledged, but kept from the tables until their
// trainer commits, because gradients that lie in a table are one update. Which step a push belongs to, and that it comes once,
// ConsistencyController says.
// Thread rule: one thread at a time; what it hands out is immutable, and workers read it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "ps/wire/step.h"
#include "ps/server/table_workers.h"

namespace tandem::ps {

struct HeldPush {
  uint32_t slice = 0;
  uint64_t order = 0;  // within the slice
  TableWorkers::Shares shares;
  size_t num_bytes = 0;  // of ids and rows
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

// The worker's share of the pushes as the pending step of its tables. On the worker; REQUIRES: nothing is pending there.
void AccumulateHeld(const StepPushes& pushes, TableWorker& worker);
// The squared norm of that, which leaves nothing pending.
absl::uint128 NormOfHeld(const StepPushes& pushes, TableWorker& worker);
// What is pending in the worker's tables becomes part of the rows, or of nothing if the step is skipped. OutOfRange as
// Table::overflow says: the tables are of no use any more.
absl::Status CommitPending(const CommitArgs& args, TableWorker& worker);

}  // namespace tandem::ps
