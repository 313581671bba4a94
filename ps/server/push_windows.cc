#include "ps/server/push_windows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem::ps {

PushWindow::PushWindow(uint64_t highest, const Bits& applied)
    : highest_(highest), applied_(applied) {
  TANDEM_CHECK(IsWindow(highest, applied)) << "window up to " << highest;
}

bool PushWindow::IsWindow(uint64_t highest, const Bits& applied) {
  if (highest == 0 || highest >> kSequenceBits != 0 || !applied.test(0)) return false;
  return highest >= kSize || (applied >> highest).none();
}

void PushWindow::Advance(uint64_t highest) {
  const uint64_t by = highest - highest_;
  if (by < kSize)
    applied_ <<= by;
  else
    applied_.reset();
  highest_ = highest;
}

void PushWindow::Insert(uint64_t sequence) {
  if (sequence > highest_) Advance(sequence);
  TANDEM_CHECK(Reaches(sequence)) << "sequence " << sequence << " in a window up to " << highest_;
  applied_.set(highest_ - sequence);
}

void PushWindow::Merge(const PushWindow& other) {
  PushWindow behind = other;
  if (behind.highest_ > highest_) std::swap(behind, *this);
  behind.Advance(highest_);
  applied_ |= behind.applied_;
}

void PushWindows::Restart(uint32_t trainer, uint32_t incarnation) {
  TANDEM_CHECK(!HasPending(trainer)) << "trainer " << trainer;
  trainers_[trainer] = Trainer();
  trainers_[trainer].incarnation = incarnation;
}

absl::StatusOr<PushWindows::Known> PushWindows::Find(uint32_t trainer, uint64_t sequence,
                                                     const ShardSet& shards) const {
  const Trainer& sender = trainers_[trainer];
  Known known;
  const auto pending = sender.pending.find(sequence);
  if (pending != sender.pending.end()) {
    known.pending = pending->second.shards & shards;
    known.pending_step = pending->second.step;
  }
  if (sequence > sender.highest) return known;
  for (uint32_t shard = 0; shard < shards.size(); ++shard) {
    if (!shards.test(shard)) continue;
    const PushWindow& window = sender.windows[shard];
    if (!window.Reaches(sequence)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "push ", sequence, " of trainer ", trainer, " comes too late: virtual shard ", shard,
          " remembers its pushes ", window.highest() - PushWindow::kSize + 1, " to ",
          window.highest(), " only and cannot tell whether it was applied"));
    }
    known.applied.set(shard, window.Contains(sequence));
  }
  return known;
}

void PushWindows::Add(uint32_t trainer, uint64_t step, uint64_t sequence, const ShardSet& shards) {
  Pending& pending = trainers_[trainer].pending[sequence];
  TANDEM_CHECK(pending.step == 0 || pending.step == step)
      << "push of step " << step << ", pending in step " << pending.step;
  pending.step = step;
  pending.shards |= shards;
}

PushWindow& PushWindows::WindowOf(Trainer& trainer, uint32_t shard) {
  if (trainer.windows.empty()) trainer.windows.resize(rpc::kNumVirtualShards);
  return trainer.windows[shard];
}

void PushWindows::Fold(uint32_t trainer, uint64_t step) {
  Trainer& of = trainers_[trainer];
  for (auto it = of.pending.begin(); it != of.pending.end();) {
    const auto& [sequence, pending] = *it;
    if (pending.step != step) {
      ++it;
      continue;
    }
    for (uint32_t shard = 0; shard < pending.shards.size(); ++shard) {
      if (!pending.shards.test(shard)) continue;
      // Skips a window that a later sequence of an earlier step has moved past this sequence. Find
      // then refuses a repetition as too old to tell.
      if (PushWindow& window = WindowOf(of, shard); window.Reaches(sequence))
        window.Insert(sequence);
    }
    if (pending.shards.any()) of.highest = std::max(of.highest, sequence);
    it = of.pending.erase(it);
  }
}

std::vector<ShardWindow> PushWindows::Save() const {
  std::vector<ShardWindow> saved;
  for (uint32_t shard = 0; shard < rpc::kNumVirtualShards; ++shard) {
    for (uint32_t trainer = 0; trainer < trainers_.size(); ++trainer) {
      const Trainer& of = trainers_[trainer];
      if (of.windows.empty() || of.windows[shard].empty()) continue;
      saved.push_back({shard, trainer, of.incarnation, of.windows[shard]});
    }
  }
  return saved;
}

absl::Status PushWindows::Restore(const std::vector<ShardWindow>& saved) {
  for (const ShardWindow& each : saved) {
    if (each.trainer < trainers_.size()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("virtual shard ", each.shard, " was saved with pushes of trainer ",
                     each.trainer, ", but this job has ", trainers_.size(), " trainers"));
  }
  for (uint32_t trainer = 0; trainer < trainers_.size(); ++trainer)
    Restart(trainer, incarnation(trainer));
  for (const ShardWindow& each : saved) {
    if (each.incarnation > incarnation(each.trainer)) Restart(each.trainer, each.incarnation);
    Trainer& trainer = trainers_[each.trainer];
    if (each.incarnation < trainer.incarnation) continue;
    WindowOf(trainer, each.shard).Merge(each.window);
    trainer.highest = std::max(trainer.highest, each.window.highest());
  }
  return absl::OkStatus();
}

}  // namespace tandem::ps
