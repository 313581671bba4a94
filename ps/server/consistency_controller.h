// Decides whose updates a pull sees (ConsistencySpec). The state is each trainer's clock (its last
// applied step), who has committed the next step, and known pushes (PushWindows). The controller
// decides and TableHost acts. A trainer's open step is its clock + 1. The rules for calls are above
// the class.
// A restarted trainer has a higher incarnation. From its first call on, calls of earlier
// incarnations are refused.
// Thread rule: one thread at a time. No time, no lock, no memory of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/embedding.pb.h"
#include "ps/server/push_windows.h"
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"

namespace tandem::ps {

// The process that a call comes from.
struct Caller {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
};

// InvalidArgument unless the mode is known and the staleness has a meaning for the mode.
absl::Status CheckConsistency(const ConsistencySpec& consistency);

// The rules, for a call of step k by a trainer:
//   pull k    Waits for clocks. BSP: all clocks k - 1. SSP with staleness s: own clock k - 1 and
//             all clocks k - 1 - s. ASP: own clock k - 1. PERMIT with staleness n: own clock k - n.
//             The lag at the end of the wait is counted. A pull more than one step past the last
//             step that may be open is refused, because it would wait forever.
//   push k    Goes into the open step, in PERMIT also into the n - 1 steps after it. A repetition
//             is acknowledged and ignored, however late.
//   norm k    BSP: answered when every trainer has asked. Other modes: answered at once. After a
//             norm the trainer pushes no more in this step.
//   commit k  BSP: applied when every trainer has committed the step with the same arguments. Other
//             modes: applied at once, for its trainer alone.
//   save k    Allowed when every clock is k.
//   load k    Sets every clock to k. Allowed before any other call.
class ConsistencyController {
 public:
  enum class PullVerdict { NOW, LATER };
  // WAIT: other trainers are missing. COMPLETE: this call was the last one. PAST: the step is
  // applied already.
  enum class RoundVerdict { WAIT, COMPLETE, PAST };

  // Call once, or again with the same arguments.
  // REQUIRES: CheckConsistency(consistency).ok().
  void SetTrainers(uint32_t num_trainers, const ConsistencySpec& consistency = {});
  uint32_t num_trainers() const { return static_cast<uint32_t>(trainers_.size()); }
  const ConsistencySpec& consistency() const { return consistency_; }
  // True if the pushes of all trainers are one update (BSP). Otherwise each trainer's pushes are an
  // update.
  bool sums_trainers() const { return consistency_.mode() == ConsistencySpec::BSP; }
  uint64_t clock(uint32_t trainer) const { return trainers_[trainer].clock; }
  // The slowest trainer's clock; in BSP the clock of every trainer.
  uint64_t applied() const;
  // Windows of applied pushes, without pending pushes.
  const PushWindows& windows() const { return windows_; }
  // True if a commit of the open step waits for other trainers.
  bool has_commits() const;
  // Histograms over admitted pulls of step k.
  // staleness(): steps from the slowest trainer's clock to k - 1.
  // outstanding(): steps from the trainer's own clock to k.
  const StepCounts& staleness() const { return staleness_; }
  const StepCounts& outstanding() const { return outstanding_; }

  // A method that refuses with a Status changes nothing (except AdmitCommit, see below). But a
  // higher incarnation is remembered once its call is well-formed. FailedPrecondition if the
  // caller's incarnation is old. FailedPrecondition also if the incarnation is new and the earlier
  // one has begun the open step. Only a load can undo half a step of a dead process. A process that
  // is no trainer may pull; its own clock is then the slowest clock.
  absl::StatusOr<PullVerdict> AdmitPull(const std::optional<Caller>& caller, uint64_t step);
  // Asks again for a pull whose verdict was LATER. True ends the wait.
  bool AdmitWaitingPull(const std::optional<Caller>& caller, uint64_t step);
  // Returns the shards among `shards`, the virtual shards of the push's ids, that must accumulate
  // the push. None: the push is a repetition. FailedPrecondition if the push is neither new nor a
  // repetition:
  //  - its step was applied without it;
  //  - its sequence served another step;
  //  - the windows cannot tell.
  // A push that covers other pushes (PushRequest.covered) must, in each shard, be new with all of
  // them or known with all of them.
  absl::StatusOr<ShardSet> AdmitPush(const Caller& caller, uint64_t step, uint64_t sequence,
                                     const ShardSet& shards,
                                     const std::vector<PushName>& covered = {});
  absl::StatusOr<RoundVerdict> AdmitNorm(const Caller& caller, uint64_t step);
  // COMPLETE applies the step. FailedPrecondition, naming both, if two trainers disagree. Then the
  // commits of the step are forgotten, because none can succeed.
  absl::StatusOr<RoundVerdict> AdmitCommit(const Caller& caller, const CommitArgs& args);
  // FailedPrecondition, naming a trainer, unless every clock is `step`.
  absl::Status CheckSave(uint64_t step) const;
  // FailedPrecondition if a call for a step was admitted before. A pull for step 0 is for no step.
  absl::Status CheckLoad(uint64_t step) const;
  // Restores the clocks and the windows that were saved with the rows. Errors are those of
  // PushWindows::Restore.
  // REQUIRES: CheckLoad(step).ok().
  absl::Status Load(uint64_t step, const std::vector<ShardWindow>& windows);

 private:
  struct Trainer {
    uint64_t clock = 0;
    bool asked_norm = false;  // asked for its open step's norm
    std::optional<CommitArgs> commit = std::nullopt;
  };

  absl::Status CheckTrainer(const char* what, uint32_t trainer) const;
  // Checks that the step exists and is at most `ahead` steps past the trainer's clock.
  absl::Status CheckStep(const char* what, uint32_t trainer, uint64_t step, uint64_t ahead) const;
  // Checks that a push can cover `covered` beside its own name.
  absl::Status CheckCovered(const PushName& own, const std::vector<PushName>& covered) const;
  // Returns the shards among `shards` in which the push was not known before.
  absl::StatusOr<ShardSet> FreshShards(const PushName& push, uint64_t step,
                                       const ShardSet& shards) const;
  // Remembers the caller's incarnation, or refuses the call.
  absl::Status NoteCaller(const char* what, const Caller& caller);
  // How many steps of one trainer may be open at a time.
  uint64_t StepsUnderWay() const {
    return consistency_.mode() == ConsistencySpec::PERMIT ? consistency_.staleness() : 1;
  }
  uint64_t OwnClock(const std::optional<Caller>& caller) const {
    return caller ? clock(caller->trainer) : applied();
  }
  // Marks the pushes of the trainer's open step as applied.
  void Apply(uint32_t trainer);

  ConsistencySpec consistency_;
  uint64_t loaded_ = 0;  // the step at which clocks begin
  bool begun_ = false;   // a call for a step was admitted
  std::vector<Trainer> trainers_;
  PushWindows windows_;
  StepCounts staleness_, outstanding_;
};

}  // namespace tandem::ps
