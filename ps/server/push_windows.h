// Records which pushes have reached which rows, so that each push is applied exactly once. A push
// is known by its trainer and sequence, and recorded for every virtual shard of its ids. So a
// shard's record can be saved and moved with its rows. All pushes into open steps are pending; Fold
// makes a trainer's pushes of a step applied. For applied pushes, each (trainer, virtual shard) has
// a window: the highest sequence and a bitmap of the 256 up to it. A checkpoint has no pending
// gradients, so windows alone tell what its rows contain.
// Thread rule: one thread at a time; a copy is a value. Memory: 40 KB per trainer that pushed.
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

// The applied sequences of one trainer in one virtual shard.
class PushWindow {
 public:
  static constexpr size_t kSize = 256;
  using Bits = std::bitset<kSize>;  // bit i: sequence highest - i was applied

  PushWindow() = default;
  // REQUIRES: IsWindow(highest, applied).
  PushWindow(uint64_t highest, const Bits& applied);
  // True if some set of sequences yields this window: the highest is applied, and none is below 1.
  static bool IsWindow(uint64_t highest, const Bits& applied);

  bool empty() const { return highest_ == 0; }
  uint64_t highest() const { return highest_; }
  const Bits& applied() const { return applied_; }
  // False if the sequence is so old that the window cannot tell whether it was applied.
  bool Reaches(uint64_t sequence) const { return sequence + kSize > highest_; }
  // REQUIRES: Reaches(sequence).
  bool Contains(uint64_t sequence) const {
    return sequence <= highest_ && applied_.test(highest_ - sequence);
  }
  // REQUIRES: Reaches(sequence).
  void Insert(uint64_t sequence);
  // Adds the sequences of `other`. The window with the higher sequence limits how far back the
  // result reaches.
  void Merge(const PushWindow& other);

 private:
  void Advance(uint64_t highest);

  uint64_t highest_ = 0;  // 0: the window is empty
  Bits applied_;
};

// A window with its shard and trainer.
struct ShardWindow {
  uint32_t shard = 0;
  uint32_t trainer = 0;
  uint32_t incarnation = 0;
  PushWindow window;
};

// Windows in a checkpoint, sorted by shard, then trainer. Valid for one job only, because trainers
// of the next job count anew.
struct SavedWindows {
  uint64_t job_epoch = 0;
  std::vector<ShardWindow> windows;
};

class PushWindows {
 public:
  // The virtual shards that have applied a push, and the shards in which the push waits for the end
  // of its step.
  struct Known {
    ShardSet applied, pending;
    uint64_t pending_step = 0;  // 0: the push is not pending
  };

  // Sets the number of trainers. Existing trainers keep their records.
  void SetTrainers(uint32_t num_trainers) { trainers_.resize(num_trainers); }

  // REQUIRES, for all functions below: trainer < the number of trainers.

  // The highest incarnation passed to Restart or Restore; 0 if none.
  uint32_t incarnation(uint32_t trainer) const { return trainers_[trainer].incarnation; }
  bool HasPending(uint32_t trainer) const { return !trainers_[trainer].pending.empty(); }
  // Forgets the trainer's record, because a new process counts its sequences anew.
  // REQUIRES: nothing of the trainer is pending.
  void Restart(uint32_t trainer, uint32_t incarnation);

  // Returns what is known of a push in `shards`. FailedPrecondition, naming trainer, sequence and
  // window, if the push is older than a shard's window reaches: nobody knows whether it was
  // applied.
  absl::StatusOr<Known> Find(uint32_t trainer, uint64_t sequence, const ShardSet& shards) const;
  // Makes the push pending in `shards` too.
  // REQUIRES: Find knows the push in none of these shards, and with no other step.
  void Add(uint32_t trainer, uint64_t step, uint64_t sequence, const ShardSet& shards);
  // Makes the pending pushes of the trainer's step applied.
  void Fold(uint32_t trainer, uint64_t step);

  // Returns all windows, sorted by shard, then trainer.
  std::vector<ShardWindow> Save() const;
  // Replaces all windows by saved ones, and merges windows of the same shard and trainer. Leaves
  // out windows of incarnations below the highest known. FailedPrecondition, changing nothing, if a
  // trainer does not exist.
  // REQUIRES: nothing is pending.
  absl::Status Restore(const std::vector<ShardWindow>& saved);

 private:
  struct Pending {
    uint64_t step = 0;
    ShardSet shards;
  };
  struct Trainer {
    uint32_t incarnation = 0;
    // The highest sequence of all windows; later sequences are in none.
    uint64_t highest = 0;
    std::vector<PushWindow> windows;      // by virtual shard; empty until a push was applied
    std::map<uint64_t, Pending> pending;  // by sequence
  };

  static PushWindow& WindowOf(Trainer& trainer, uint32_t shard);

  std::vector<Trainer> trainers_;
};

}  // namespace tandem::ps
