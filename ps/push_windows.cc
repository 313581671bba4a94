#include "ps/push_windows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem::ps {

PushWindow::PushWindow(uint64_t highest, const Bits& applied) : highest_(highest), applied_(applied) {
  TANDEM_CHECK(IsWindow(highest, applied)) << "window up to " << highest;
}

bool PushWindow::IsWindow(uint64_t highest, const Bits& applied) {
  if (highest == 0 || highest >> kSequenceBits != 0 || !applied.test(0)) return false;
  return highest >= kSize || (applied >> highest).none();
}

void PushWindow::Advance(uint64_t highest) {
  const uint64_t by = highest - highest_;
  if (by < kSize) applied_ <<= by;
  else applied_.reset();
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

absl::StatusOr<PushWindows::Known> PushWindows::Find(uint32_t trainer, uint64_t sequence, const ShardSet& shards) const {
  const Trainer& sender = trainers_[trainer];
  Known known;
  const auto pending = sender.pending.find(sequence);
  if (pending != sender.pending.end()) known.pending = pending->second & shards;
  if (sequence > sender.highest) return known;
  for (uint32_t shard = 0; shard < shards.size(); ++shard) {
    if (!shards.test(shard)) continue;
    const PushWindow& window = sender.windows[shard];
    if (!window.Reaches(sequence)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "push ", sequence, " of trainer ", trainer, " comes too late: virtual shard ", shard, " remembers its pushes ",
          window.highest() - PushWindow::kSize + 1, " to ", window.highest(), " only and cannot tell whether it was applied"));
    }
    known.applied.set(shard, window.Contains(sequence));
  }
  return known;
}

void PushWindows::Add(uint32_t trainer, uint64_t sequence, const ShardSet& shards) {
  trainers_[trainer].pending[sequence] |= shards;
}

PushWindow& PushWindows::WindowOf(Trainer& trainer, uint32_t shard) {
  if (trainer.windows.empty()) trainer.windows.resize(rpc::kNumVirtualShards);
  return trainer.windows[shard];
}

void PushWindows::Fold() {
  for (Trainer& trainer : trainers_) {
    for (const auto& [sequence, shards] : trainer.pending) {
      for (uint32_t shard = 0; shard < shards.size(); ++shard) {
        if (shards.test(shard)) WindowOf(trainer, shard).Insert(sequence);
      }
      if (shards.any()) trainer.highest = std::max(trainer.highest, sequence);
    }
    trainer.pending.clear();
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
    return absl::FailedPreconditionError(absl::StrCat("virtual shard ", each.shard, " was saved with pushes of trainer ",
                                                      each.trainer, ", but this job has ", trainers_.size(), " trainers"));
  }
  for (uint32_t trainer = 0; trainer < trainers_.size(); ++trainer) Restart(trainer, incarnation(trainer));
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
