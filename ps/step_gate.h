// The synchronous rule (BSP) of one server, as a pure state: which step is applied, who has committed the next one, what
// of it has been pushed already. It decides; TableHost acts. At any time exactly one step is open: applied() + 1.
//   pull k    waits until step k - 1 is applied
//   push k    only into the open step; a repetition, and a push of a step already applied, is acknowledged and ignored
//   norm k    answered when every trainer has asked; a trainer that asked pushes no more in this step
//   commit k  applied when every trainer has committed it, with the same arguments
//   load k    makes step k the last one applied, before anything else came
// Thread rule: one thread at a time. No clock, no lock, no memory of rows.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/client.h"

namespace tandem::ps {

class StepGate {
 public:
  enum class PullVerdict { NOW, LATER };
  enum class PushVerdict { NEW, REPEATED };
  // WAIT: others are missing. COMPLETE: this call was the last one. PAST: the step is applied already.
  enum class RoundVerdict { WAIT, COMPLETE, PAST };

  void SetTrainers(uint32_t num_trainers) { trainers_.resize(num_trainers); }
  uint32_t num_trainers() const { return static_cast<uint32_t>(trainers_.size()); }
  uint64_t applied() const { return applied_; }

  // Every method refuses with a Status and then has changed nothing (but see AdmitCommit).
  absl::StatusOr<PullVerdict> AdmitPull(uint64_t step);
  absl::StatusOr<PushVerdict> AdmitPush(uint32_t trainer, uint64_t step, uint32_t slice, uint64_t sequence);
  absl::StatusOr<RoundVerdict> AdmitNorm(uint32_t trainer, uint64_t step);
  // COMPLETE makes the step applied. If two trainers disagree (FailedPrecondition, naming both) the commits of the step
  // are forgotten: none of them can succeed.
  absl::StatusOr<RoundVerdict> AdmitCommit(uint32_t trainer, const CommitArgs& args);
  // FailedPrecondition if a call for a step (a pull for step 0 is for none) was admitted before.
  absl::Status CheckLoad(uint64_t step) const;
  // REQUIRES: CheckLoad(step).ok().
  void Load(uint64_t step) { applied_ = step; }

 private:
  struct Trainer {
    std::set<std::tuple<uint32_t, uint64_t>> pushes;  // (slice, sequence) of the open step
    bool asked_norm = false;
    std::optional<CommitArgs> commit;
  };

  absl::Status CheckCaller(const char* what, uint32_t trainer, uint64_t step) const;
  void Apply();

  uint64_t applied_ = 0;
  bool begun_ = false;  // something was admitted
  std::vector<Trainer> trainers_;
};

}  // namespace tandem::ps
