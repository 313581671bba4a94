// Whose updates a pull sees (ConsistencySpec), as a pure state: each trainer's clock (its last step applied), who has committed the
// next one, what has been pushed already (PushWindows). It decides; TableHost acts. A trainer's open step is its clock + 1.
//   pull k    waits for the trainer's own clock and for the slowest one, as the mode says: own k - 1 and, in BSP, all k - 1, in SSP
//             all k - 1 - s; in PERMIT own k - n alone. What was missing when the wait ended is counted. Who asks for more than the
//             step behind the last one that may be under way is refused: such a pull would wait for ever
//   push k    into the open step, in PERMIT also into the n - 1 after it; a repetition is acknowledged and ignored, however late
//   norm k    BSP: answered when every trainer has asked; else at once. A trainer that asked pushes no more in this step
//   commit k  BSP: applied when every trainer has committed it, with the same arguments; else at once, of its trainer alone
//   save k    when every clock is k
//   load k    makes every clock k, before anything else came
// A trainer that was restarted has a higher incarnation: from its first call on, calls of the one before are refused.
// Thread rule: one thread at a time. No time, no lock, no memory of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/wire/step.h"
#include "ps/server/push_windows.h"
#include "ps/wire/statistics.h"

namespace tandem::ps {

// Which process a call comes from.
struct Caller {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
};

// InvalidArgument unless it is a known mode, with a staleness that it has a meaning for.
absl::Status CheckConsistency(const ConsistencySpec& consistency);

class ConsistencyController {
 public:
  enum class PullVerdict { NOW, LATER };
  // WAIT: others are missing. COMPLETE: this call was the last one. PAST: the step is applied already.
  enum class RoundVerdict { WAIT, COMPLETE, PAST };

  // Once, or again with the same. REQUIRES: CheckConsistency(consistency).ok().
  void SetTrainers(uint32_t num_trainers, const ConsistencySpec& consistency = {});
  uint32_t num_trainers() const { return static_cast<uint32_t>(trainers_.size()); }
  const ConsistencySpec& consistency() const { return consistency_; }
  // Whether the pushes of all trainers are one update: BSP. Else each trainer's are.
  bool sums_trainers() const { return consistency_.mode() == ConsistencySpec::BSP; }
  uint64_t clock(uint32_t trainer) const { return trainers_[trainer].clock; }
  // The slowest trainer's clock; in BSP everybody's.
  uint64_t applied() const;
  // Of applied pushes only, whatever is pending.
  const PushWindows& windows() const { return windows_; }
  // Whether a commit of the open step waits for others.
  bool has_commits() const;
  // Of pulls that wait no more: how many steps the slowest trainer's clock was short of k - 1, and the own clock of k.
  const StepCounts& staleness() const { return staleness_; }
  const StepCounts& outstanding() const { return outstanding_; }

  // Every method refuses with a Status and then has changed nothing (but see AdmitCommit), except that a higher incarnation is
  // remembered once its call makes sense. FailedPrecondition if the caller's incarnation is not the trainer's last one, or
  // is a new one while the one before has begun the open step: half a step of a process that is gone can only be loaded away.
  // A pull may come from a process that is no trainer: then the slowest clock is its own.
  absl::StatusOr<PullVerdict> AdmitPull(const std::optional<Caller>& caller, uint64_t step);
  // Asks again for a pull that was to come LATER: true ends its wait.
  bool AdmitWaitingPull(const std::optional<Caller>& caller, uint64_t step);
  // Those of `shards`, the virtual shards of the push's ids, for which it is new and must be accumulated; none: it is a
  // repetition. FailedPrecondition if it is neither: its step was applied without it, its sequence served another step, or
  // the windows cannot tell. A push that covers others (PushRequest.covered) is new for a shard, or came before, with all of them.
  absl::StatusOr<ShardSet> AdmitPush(const Caller& caller, uint64_t step, uint64_t sequence, const ShardSet& shards,
                                     const std::vector<PushName>& covered = {});
  absl::StatusOr<RoundVerdict> AdmitNorm(const Caller& caller, uint64_t step);
  // Whether the trainer's next commit may be of this step; InvalidArgument.
  absl::Status CheckCommit(const Caller& caller, uint64_t step) const;
  // COMPLETE makes the step applied. If two trainers disagree (FailedPrecondition, naming both) the commits of the step
  // are forgotten: none of them can succeed.
  absl::StatusOr<RoundVerdict> AdmitCommit(const Caller& caller, const CommitArgs& args);
  // FailedPrecondition, naming a trainer, unless every clock is `step`.
  absl::Status CheckSave(uint64_t step) const;
  // FailedPrecondition if a call for a step (a pull for step 0 is for none) was admitted before.
  absl::Status CheckLoad(uint64_t step) const;
  // `windows` are those that were saved with the rows. As PushWindows::Restore. REQUIRES: CheckLoad(step).ok().
  absl::Status Load(uint64_t step, const std::vector<ShardWindow>& windows);

 private:
  struct Trainer {
    uint64_t clock = 0;
    bool asked_norm = false;  // for its open step
    std::optional<CommitArgs> commit = std::nullopt;
  };

  absl::Status CheckTrainer(const char* what, uint32_t trainer) const;
  // That the step exists and is at most the `ahead`-th one that is not applied.
  absl::Status CheckStep(const char* what, uint32_t trainer, uint64_t step, uint64_t ahead) const;
  // That a push is possible which covers `covered` beside its own.
  absl::Status CheckCovered(const PushName& own, const std::vector<PushName>& covered) const;
  // Those of `shards` for which the push was not known before.
  absl::StatusOr<ShardSet> FreshShards(const PushName& push, uint64_t step, const ShardSet& shards) const;
  // Takes notice of the caller's incarnation.
  absl::Status NoteCaller(const char* what, const Caller& caller);
  // Of one trainer, at a time.
  uint64_t StepsUnderWay() const { return consistency_.mode() == ConsistencySpec::PERMIT ? consistency_.staleness() : 1; }
  uint64_t OwnClock(const std::optional<Caller>& caller) const { return caller ? clock(caller->trainer) : applied(); }
  // What was pushed into the trainer's open step is applied.
  void Apply(uint32_t trainer);

  ConsistencySpec consistency_;
  uint64_t loaded_ = 0;  // where clocks begin
  bool begun_ = false;  // something was admitted
  std::vector<Trainer> trainers_;
  PushWindows windows_;
  StepCounts staleness_, outstanding_;
};

}  // namespace tandem::ps
