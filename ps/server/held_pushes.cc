#include "ps/server/held_pushes.h"

#include "ps/store/table.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {

void HeldPushes::Add(uint32_t trainer, uint64_t step, HeldPush push) {
  by_step_[{trainer, step}].push_back(std::make_shared<const HeldPush>(std::move(push)));
}

StepPushes HeldPushes::Find(uint32_t trainer, uint64_t step) const {
  const auto found = by_step_.find({trainer, step});
  return found == by_step_.end() ? StepPushes() : found->second;
}

StepPushes HeldPushes::Take(uint32_t trainer, uint64_t step) {
  const auto node = by_step_.extract({trainer, step});
  return node.empty() ? StepPushes() : std::move(node.mapped());
}

void AccumulateHeld(const StepPushes& pushes, TableWorker& worker) {
  for (const auto& push : pushes) {
    for (const TableWorkers::Share& share : push->shares[static_cast<size_t>(worker.number())]) {
      Table& table = *worker.tables().at(share.table);
      table.Accumulate(push->slice, push->order, share.owned.ids, share.gradients, push->owner,
                       share.owned.positions);
    }
  }
}

absl::uint128 NormOfHeld(const StepPushes& pushes, TableWorker& worker) {
  AccumulateHeld(pushes, worker);
  absl::uint128 total = 0;
  for (auto& [number, table] : worker.tables()) {
    total = SaturatingAdd(total, table->GradientNorm());
    table->DropPending();
  }
  return total;
}

absl::Status CommitPending(const CommitArgs& args, TableWorker& worker) {
  std::map<uint32_t, double> rates;
  for (const TableRateValue& rate : args.rates) rates[rate.table] = rate.learning_rate;
  absl::Status overflow;
  for (auto& [number, table] : worker.tables()) {
    table->Commit(args.step, rates[number], args.gradient_scale, args.skip);
    overflow.Update(table->overflow());
  }
  return overflow;
}

}  // namespace tandem::ps
