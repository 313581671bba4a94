// The verbs of a step on the tables of one server process: pull, push, gradient norm, commit. Calls
// are checked, cut by owner and posted to the workers' mailboxes under one short lock. Mailboxes
// are first in, first out, and this order alone orders a step. A push posted before a commit is
// part of the commit, and a pull posted after a commit sees it. ConsistencyController decides who
// waits for whom. In BSP a push goes to the workers at once; in other modes it waits for its
// trainer's commit (HeldPushes).
// Thread rule: same as HostedTables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/server/consistency_controller.h"
#include "ps/server/held_pushes.h"
#include "ps/server/hosted_tables.h"
#include "ps/server/open_step.h"
#include "ps/server/parked_pulls.h"
#include "ps/server/table_workers.h"
#include "ps/wire/step.h"

namespace tandem::ps {

// Parts of a call for one table, as they lie in a message: at any alignment, in a wire format.
struct PullPart {
  uint32_t table = 0;
  size_t count = 0;
  const void* ids = nullptr;     // u64[count]; read before the call returns
  void* rows = nullptr;          // [count, dim]; written before the callback
  uint32_t* versions = nullptr;  // like PullSegment's; read and written before the callback
  uint32_t read_bound = 0;
  WireFormat format = WIRE_F32;  // format of the rows
  // u32[count], ascending, or null. If not null, the pull adds weights[i] * row(ids[i]) to
  // rows[row_of[i]], in the order of the ids. Then `rows` are f32 and zero, and ids may repeat.
  // `row_of` and `weights` are read before the callback.
  const uint32_t* row_of = nullptr;
  const void* weights = nullptr;  // f32[count] at any alignment; null: all 1
};
struct PushPart {
  uint32_t table = 0;
  size_t count = 0;
  const void* ids = nullptr;  // u64[count]; read before the call returns
  WireRows gradients;         // [num_gradients, dim]; read until the step is committed
  // u32[count], ascending: the index of each id's gradient; ids may then repeat. Null: ids[i] has
  // gradient i.
  const uint32_t* row_of = nullptr;
  size_t num_gradients = count;
};
// The place of a push in the order of sums: by slice, then trainer, then sequence. Trainer,
// incarnation and sequence identify a repeated push.
struct PushPlace {
  uint32_t trainer = 0;
  uint64_t step = 0;
  uint32_t slice = 0;
  uint64_t sequence = 0;  // 1 to 2^40 - 1, never used twice by an incarnation
  uint32_t incarnation = 1;
  std::vector<PushName> covered = {};  // other trainers' pushes in this push (PushRequest.covered)
};

class TableHost : public HostedTables {
 public:
  explicit TableHost(int num_workers) : HostedTables(num_workers) {}
  // Completes parked calls with Cancelled and waits for the workers to finish their tasks.
  ~TableHost();

  // For a call with a trace_id, tracer() has every worker's share of the work when the call is
  // answered. A norm or commit of BSP runs once for all trainers, and has the last trace_id given.
  // A caller that is no trainer passes nullopt.
  void Pull(const std::optional<Caller>& caller, uint64_t step, bool create,
            const std::vector<PullPart>& parts, Done done, uint64_t trace_id = 0);
  // Adds a push. `owner` keeps the gradients alive. A repeated push is answered and counts once. If
  // a repetition brings ids of virtual shards that the push did not have, these ids count. The ids
  // of a shard must be those of the first time.
  void Accumulate(const PushPlace& place, const std::vector<PushPart>& parts,
                  std::shared_ptr<const void> owner, Done done, uint64_t trace_id = 0);
  void GradientNorm(const Caller& caller, uint64_t step,
                    std::function<void(absl::StatusOr<absl::uint128>)> done, uint64_t trace_id = 0);
  void Commit(const Caller& caller, const CommitArgs& args, Done done, uint64_t trace_id = 0);
  // Completes every parked call, and every later call, with `reason`.
  // REQUIRES: !reason.ok().
  void Fail(absl::Status reason);

 private:
  using NormDone = OpenStep::NormDone;
  // Collected under the lock, run after its release.
  using Callbacks = std::vector<std::function<void()>>;

  // Takes a push, unless it is refused. Returns true if the push is finished for now, false if
  // `done` runs when workers have added the push.
  absl::StatusOr<bool> Take(const PushPlace& place, const std::vector<PushPart>& parts,
                            std::shared_ptr<const void> owner, const Done& done, uint64_t trace_id);
  void PostPull(ParkedPull pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Posts the parked pulls that need not wait any longer.
  void PostParkedPulls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns OutOfRange for a push whose gradient of `id` is not finite in a table that rejects such
  // gradients. The error names row, trainer and step.
  absl::Status Reject(const TableSpec& spec, uint64_t id, const PushPlace& place,
                      const ShardSet& shards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostNorm(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommit(const CommitArgs& args, Callbacks* later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Norm and commit of one trainer alone.
  void PostNormOf(uint32_t trainer, uint64_t step, NormDone done, uint64_t trace_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommitOf(uint32_t trainer, const CommitArgs& args, Done done, uint64_t trace_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns Ok if every worker's CommitPending was Ok. Otherwise the host fails, because its rows
  // are of two steps.
  absl::Status FinishCommit(const std::vector<absl::Status>& results);
  void FinishNorm(uint64_t step, absl::uint128 norm);

  HeldPushes held_ ABSL_GUARDED_BY(mutex_);     // empty in BSP
  OpenStep open_step_ ABSL_GUARDED_BY(mutex_);  // empty in other modes
  ParkedPulls parked_pulls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::ps
