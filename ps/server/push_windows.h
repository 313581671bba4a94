// Which pushes have reached which rows, so that each is applied exactly once: a push is known by its trainer and its sequence,
// and remembered for every virtual shard of which it has ids, so that a shard's memory can be saved and moved with its rows.
// Pushes into open steps are pending, every one of them; Fold makes a trainer's pushes of a step applied, and of the applied ones
// each (trainer, virtual shard) has a window: the highest sequence and a bitmap of the 256 up to it. So windows alone say what is
// in the rows of a checkpoint, which has no pending gradients.
// Thread rule: one thread at a time; a copy is a value. No lock, no clock. Memory: 40 KB for each trainer that pushed.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/wire/router.h"
#include "ps/wire/step.h"

namespace tandem::ps {

// The sequences applied, of one trainer in one virtual shard.
class PushWindow {
 public:
  static constexpr size_t kSize = 256;
  using Bits = std::bitset<kSize>;  // bit i: sequence highest - i was applied

  PushWindow() = default;
  // REQUIRES: IsWindow(highest, applied).
  PushWindow(uint64_t highest, const Bits& applied);
  // Whether some sequences leave this window behind: the highest is applied, and none below 1.
  static bool IsWindow(uint64_t highest, const Bits& applied);

  bool empty() const { return highest_ == 0; }
  uint64_t highest() const { return highest_; }
  const Bits& applied() const { return applied_; }
  // False: the sequence lies so far back that nothing is known of it.
  bool Reaches(uint64_t sequence) const { return sequence + kSize > highest_; }
  // REQUIRES: Reaches(sequence).
  bool Contains(uint64_t sequence) const { return sequence <= highest_ && applied_.test(highest_ - sequence); }
  // REQUIRES: Reaches(sequence).
  void Insert(uint64_t sequence);
  // What either contains, as far back as the window with the higher sequence reaches.
  void Merge(const PushWindow& other);

 private:
  void Advance(uint64_t highest);

  uint64_t highest_ = 0;  // 0: none
  Bits applied_;
};

// A window with its owner.
struct ShardWindow {
  uint32_t shard = 0;
  uint32_t trainer = 0;
  uint32_t incarnation = 0;
  PushWindow window;
};

// Windows as a checkpoint holds them: by shard, then trainer; good for one job only, because the next one's trainers count anew.
struct SavedWindows {
  uint64_t job_epoch = 0;
  std::vector<ShardWindow> windows;
};

class PushWindows {
 public:
  // The virtual shards for which a push is in the rows already, and those for which it waits for its step's end.
  struct Known {
    ShardSet applied, pending;
    uint64_t pending_step = 0;  // 0: it is not pending
  };

  // Trainers that are there already keep what is known of them.
  void SetTrainers(uint32_t num_trainers) { trainers_.resize(num_trainers); }

  // Below, REQUIRES: trainer < the number of trainers.

  // The highest one that Restart or Restore told of; 0: none.
  uint32_t incarnation(uint32_t trainer) const { return trainers_[trainer].incarnation; }
  bool HasPending(uint32_t trainer) const { return !trainers_[trainer].pending.empty(); }
  // A new process counts its sequences anew: what is known of the trainer is forgotten. REQUIRES: nothing of it is pending.
  void Restart(uint32_t trainer, uint32_t incarnation);

  // What is known of a push, among `shards`. FailedPrecondition, naming trainer, sequence and window, if it lies before what a
  // shard's window reaches: then nobody knows whether it was applied.
  absl::StatusOr<Known> Find(uint32_t trainer, uint64_t sequence, const ShardSet& shards) const;
  // The push is now pending for `shards` too. REQUIRES: Find knows it for none of them, and of no other step.
  void Add(uint32_t trainer, uint64_t step, uint64_t sequence, const ShardSet& shards);
  // What was pending of the trainer's step is applied.
  void Fold(uint32_t trainer, uint64_t step);

  // All windows, by shard, then trainer.
  std::vector<ShardWindow> Save() const;
  // Replaces all windows by saved ones; a shard's may come twice, and are merged. Windows of an incarnation before the highest
  // known are left out. FailedPrecondition, changing nothing, if there is no such trainer. REQUIRES: nothing is pending.
  absl::Status Restore(const std::vector<ShardWindow>& saved);

 private:
  struct Pending {
    uint64_t step = 0;
    ShardSet shards;
  };
  struct Trainer {
    uint32_t incarnation = 0;
    uint64_t highest = 0;                 // of all windows: whatever comes after it is in none
    std::vector<PushWindow> windows;      // by virtual shard; empty until something was applied
    std::map<uint64_t, Pending> pending;  // by sequence
  };

  static PushWindow& WindowOf(Trainer& trainer, uint32_t shard);

  std::vector<Trainer> trainers_;
};

}  // namespace tandem::ps
