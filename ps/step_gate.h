// The synchronous rule (BSP) of one server, as a pure state: which step is applied, who has committed the next one, what has
// been pushed already (PushWindows). It decides; TableHost acts. At any time exactly one step is open: applied() + 1.
//   pull k    waits until step k - 1 is applied
//   push k    only into the open step; a repetition, of a step already applied too, is acknowledged and ignored
//   norm k    answered when every trainer has asked; a trainer that asked pushes no more in this step
//   commit k  applied when every trainer has committed it, with the same arguments
//   load k    makes step k the last one applied, before anything else came
// A trainer that was restarted has a higher incarnation: from its first call on, calls of the one before are refused.
// Thread rule: one thread at a time. No clock, no lock, no memory of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/client.h"
#include "ps/push_windows.h"

namespace tandem::ps {

// Which process a call comes from.
struct Caller {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
};

class StepGate {
 public:
  enum class PullVerdict { NOW, LATER };
  // WAIT: others are missing. COMPLETE: this call was the last one. PAST: the step is applied already.
  enum class RoundVerdict { WAIT, COMPLETE, PAST };

  void SetTrainers(uint32_t num_trainers) {
    trainers_.resize(num_trainers);
    windows_.SetTrainers(num_trainers);
  }
  uint32_t num_trainers() const { return static_cast<uint32_t>(trainers_.size()); }
  uint64_t applied() const { return applied_; }
  // Of applied pushes only, whatever is pending.
  const PushWindows& windows() const { return windows_; }
  // Whether a commit of the open step waits for others.
  bool has_commits() const;

  // Every method refuses with a Status and then has changed nothing (but see AdmitCommit), except that a higher incarnation is
  // remembered once its call makes sense. FailedPrecondition if the caller's incarnation is not the trainer's last one, or
  // is a new one while the one before has begun the open step: half a step of a process that is gone can only be loaded away.
  // A pull may come from a process that is no trainer.
  absl::StatusOr<PullVerdict> AdmitPull(const std::optional<Caller>& caller, uint64_t step);
  // Those of `shards`, the virtual shards of the push's ids, for which it is new and must be accumulated; none: it is a
  // repetition. FailedPrecondition if it is neither: its step was applied without it, its sequence served another step, or
  // the windows cannot tell.
  absl::StatusOr<ShardSet> AdmitPush(const Caller& caller, uint64_t step, uint64_t sequence, const ShardSet& shards);
  absl::StatusOr<RoundVerdict> AdmitNorm(const Caller& caller, uint64_t step);
  // COMPLETE makes the step applied. If two trainers disagree (FailedPrecondition, naming both) the commits of the step
  // are forgotten: none of them can succeed.
  absl::StatusOr<RoundVerdict> AdmitCommit(const Caller& caller, const CommitArgs& args);
  // FailedPrecondition if a call for a step (a pull for step 0 is for none) was admitted before.
  absl::Status CheckLoad(uint64_t step) const;
  // `windows` are those that were saved with the rows. As PushWindows::Restore. REQUIRES: CheckLoad(step).ok().
  absl::Status Load(uint64_t step, const std::vector<ShardWindow>& windows);

 private:
  struct Trainer {
    bool asked_norm = false;
    std::optional<CommitArgs> commit;
  };

  absl::Status CheckTrainer(const char* what, uint32_t trainer) const;
  absl::Status CheckStep(const char* what, uint32_t trainer, uint64_t step) const;
  // Takes notice of the caller's incarnation.
  absl::Status Meet(const char* what, const Caller& caller);
  void Apply();

  uint64_t applied_ = 0;
  bool begun_ = false;  // something was admitted
  std::vector<Trainer> trainers_;
  PushWindows windows_;
};

}  // namespace tandem::ps
