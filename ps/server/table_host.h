// The tables of one server process, on worker threads (TableWorkers). Calls are checked, cut by owner and posted to the
// workers' mailboxes under one short lock; mailboxes are first in, first out, and that alone orders a step: whatever was
// posted before a commit is part of it, and a pull posted after it sees it. Who waits for whom is ConsistencyController's. In BSP a push goes to
// the workers as it comes, in other modes when its trainer commits (HeldPushes).
// Thread rule: any thread calls, without a lock that anybody's callbacks take; nothing blocks, but a short call may be worked on before it returns.
// Every callback runs exactly once, on a worker's or on a caller's thread, and never under the host's lock. Refused input changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/trace/trace.h"
#include "ps/wire/step.h"
#include "ps/server/held_pushes.h"
#include "ps/server/consistency_controller.h"
#include "ps/server/table_files.h"
#include "ps/server/table_specs.h"
#include "ps/server/table_workers.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {

// Parts of a call that belong to one table, as they lie in a message: at any alignment, in a wire format.
struct PullPart {
  uint32_t table = 0;
  size_t count = 0;
  const void* ids = nullptr;  // u64[count]; read before the call returns
  void* rows = nullptr;       // [count, dim]; written before the callback
  uint32_t* versions = nullptr;  // as PullSegment's, read and written before the callback
  uint32_t read_bound = 0;
  WireFormat format = WIRE_F32;  // of the rows
  // u32[count], ascending, or null. Then `rows` are f32 and zero, ids may repeat, and the row of ids[i], times weights[i], is added to the
  // one that row_of[i] says, in the order of the ids; both are read before the callback.
  const uint32_t* row_of = nullptr;
  const void* weights = nullptr;  // f32[count] at any alignment, null: all 1
};
struct PushPart {
  uint32_t table = 0;
  size_t count = 0;
  const void* ids = nullptr;  // u64[count]; read before the call returns
  WireRows gradients;         // [num_gradients, dim]; read until the step is committed
  // u32[count], ascending: which gradient is that of an id, and ids may repeat. Null: each has its own, at its place.
  const uint32_t* row_of = nullptr;
  size_t num_gradients = count;
};
// Where a push belongs in the order of sums: by slice, then trainer, then sequence. Trainer, incarnation and sequence make it
// known when it comes again.
struct PushPlace {
  uint32_t trainer = 0;
  uint64_t step = 0;
  uint32_t slice = 0;
  uint64_t sequence = 0;  // 1 to 2^40 - 1, never used twice by an incarnation
  uint32_t incarnation = 1;
  std::vector<PushName> covered = {};  // pushes of other trainers that are in it too, as PushRequest.covered
};

class TableHost {
 public:
  using Done = std::function<void(absl::Status)>;
  // Of a trainer, that wait for their step; a client has at most some dozens on their way.
  static constexpr size_t kMaxParkedPulls = 1024;
  // Of ids and rows. A pull, push or commit of no more is short: half a millisecond, in which to wake a thread for it shows. Longer ones
  // gain more by what their caller's thread does meanwhile, which is to receive the next. Those of DENSE_EQUIVALENT tables, whose rows go
  // through every step that they have missed, are never short.
  static constexpr size_t kShortCallBytes = size_t{2} << 20;

  explicit TableHost(int num_workers) : workers_(num_workers) {}
  size_t num_workers() const { return workers_.size(); }
  // Completes what is parked with Cancelled and waits for the workers to finish what they have.
  ~TableHost();
  TableHost(const TableHost&) = delete;
  TableHost& operator=(const TableHost&) = delete;

  // From now on calls that name an id of another virtual shard are refused: FailedPrecondition, "not the owner, map version n". Without
  // it the host owns all. REQUIRES: before any other call.
  void Own(const ShardSet& shards, uint32_t shard_map_version);

  // Repeatable. FailedPrecondition if a table, the number of trainers or the consistency is known already and differs.
  void CreateTables(const std::vector<TableSpec>& tables, uint32_t num_trainers, Done done,
                    const ConsistencySpec& consistency = {});
  // The dim of a table, to size a reply; InvalidArgument if there is no such table.
  absl::StatusOr<uint32_t> Dim(uint32_t table) const;
  // InvalidArgument unless rows of the table may be assigned or read with so many numbers (CheckRowWidth).
  absl::Status CheckWidth(uint32_t table, size_t width) const;

  // As Client::Assign and Client::Read. `ids` u64[count] are read before the call returns, values [count, width] until it is answered.
  void Assign(uint32_t table, const void* ids, size_t count, const void* values, size_t width, Done done);
  void Read(uint32_t table, const void* ids, size_t count, float* values, size_t width, Done done);

  // Of a call with a trace_id, every worker's share of the work is in tracer() when it is answered. A norm or a commit of BSP, which
  // runs once for all trainers, has the id of the last that gave one.
  // A caller that is no trainer has no name.
  void Pull(const std::optional<Caller>& caller, uint64_t step, bool create, const std::vector<PullPart>& parts, Done done,
            uint64_t trace_id = 0);
  // `owner` keeps the gradients alive. A push that comes again is answered and counts once. When it then brings ids of virtual
  // shards that it had none of, these count; the ids of a shard must be those of the first time.
  void Accumulate(const PushPlace& place, const std::vector<PushPart>& parts, std::shared_ptr<const void> owner, Done done,
                  uint64_t trace_id = 0);
  // The two together: a push that is refused commits nothing, and one is refused whose commit could not follow, by its step or its rates.
  // A commit that another trainer's contradicts (BSP) still leaves the push.
  void AccumulateAndCommit(const PushPlace& place, const std::vector<PushPart>& parts, std::shared_ptr<const void> owner,
                           const CommitArgs& args, Done done, uint64_t trace_id = 0);
  void GradientNorm(const Caller& caller, uint64_t step, std::function<void(absl::StatusOr<absl::uint128>)> done,
                    uint64_t trace_id = 0);
  void Commit(const Caller& caller, const CommitArgs& args, Done done, uint64_t trace_id = 0);
  void Hash(std::function<void(absl::StatusOr<HashResult>)> done);
  void Statistics(std::function<void(absl::StatusOr<StatisticsReply>)> done);
  // Every worker writes its rows of every table into `folder` (ps/server/checkpoint.h) and answers nothing else meanwhile. With them go
  // the windows of pushes, for servers that load them in the same job; epoch 0: of no job, without windows.
  void Save(uint64_t step, const std::string& folder, uint64_t job_epoch,
            std::function<void(absl::StatusOr<std::vector<SavedFile>>)> done, uint64_t trace_id = 0);
  // Replaces the tables' contents by saved rows and makes args.step the last one applied. Workers first read into new tables,
  // which take the place of the old ones when all have found everything in order. InvalidArgument or FailedPrecondition as
  // CheckLoadArgs, LoadTables and ConsistencyController::CheckLoad say. Repeatable until anything else comes.
  void Load(const LoadArgs& args, Done done);
  // Completes everything parked, and every later call, with `reason`. REQUIRES: !reason.ok().
  void Fail(absl::Status reason);

  Tracer& tracer() { return workers_.tracer(); }

 private:
  using NormDone = std::function<void(absl::StatusOr<absl::uint128>)>;
  struct ParkedPull {
    std::optional<Caller> caller;
    uint64_t step;
    TableWorkers::Shares shares;
    bool create;
    Done done;
    uint64_t trace_id;
  };
  // Messages, but for commits that were applied.
  struct Counts {
    uint64_t pulls = 0, pushes = 0, repeated_pushes = 0, commits = 0;
  };
  struct WaitingNorm {
    uint64_t step;
    NormDone done;
  };
  using Callbacks = std::vector<std::function<void()>>;  // collected under the lock, run after it

  absl::StatusOr<std::shared_ptr<const TableSpec>> FindSpec(uint32_t table) const;
  // Where a call's virtual shards are noted for CheckOwned; null if all are this server's.
  ShardSet* Noted(ShardSet* touched) const { return owned_.all() ? nullptr : touched; }
  // FailedPrecondition, naming an id of `shares`, if one of its virtual shards in `touched` is another server's.
  absl::Status CheckOwned(const ShardSet& touched, const TableWorkers::Shares& shares) const;
  // Each worker's share of rows to assign or read.
  absl::StatusOr<TableWorkers::Shares> SharesOf(uint32_t table, const void* ids, size_t count, size_t width) const;
  // REQUIRES: no row differs.
  absl::Status AssignChecked(TableWorkers::Shares shares, const void* values, size_t width, Done done);
  absl::Status CheckTrainers(uint32_t num_trainers, const ConsistencySpec& consistency) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Takes a push, which `commit` is to follow, if not null, unless it is refused. True if that is all, for now; false if `done` is told when
  // workers have it.
  absl::StatusOr<bool> Take(const PushPlace& place, const std::vector<PushPart>& parts, std::shared_ptr<const void> owner,
                            const CommitArgs* commit, const Done& done, uint64_t trace_id, TableWorkers::Posted* posted);
  void PostPull(ParkedPull pull, TableWorkers::Posted* posted = nullptr) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ResourceExhausted if its trainer has as many that wait as one may have.
  absl::Status Park(ParkedPull pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that need to wait no more.
  void PostParkedPulls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // InvalidArgument, naming row, trainer and step: the table rejects what is not finite, and the gradient of `id` is not.
  absl::Status Reject(const TableSpec& spec, uint64_t id, const PushPlace& place, const ShardSet& shards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostNorm(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommit(const CommitArgs& args, Callbacks* later, TableWorkers::Posted* posted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of one trainer alone.
  void PostNormOf(uint32_t trainer, uint64_t step, NormDone done, uint64_t trace_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommitOf(uint32_t trainer, const CommitArgs& args, Done done, uint64_t trace_id, TableWorkers::Posted* posted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a step was applied whole: workers' results of CommitPending. If not, the host fails, for its rows are of two steps.
  absl::Status FinishCommit(const std::vector<absl::Status>& results);
  void FinishNorm(uint64_t step, absl::uint128 norm);
  void FinishLoad(uint64_t step, std::shared_ptr<std::vector<absl::StatusOr<LoadedTables>>> loaded, const Done& done);

  ShardSet owned_ = ShardSet().set();
  uint32_t shard_map_version_ = 0;
  mutable absl::Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  TableSpecs specs_ ABSL_GUARDED_BY(mutex_);
  ConsistencyController controller_ ABSL_GUARDED_BY(mutex_);
  HeldPushes held_ ABSL_GUARDED_BY(mutex_);  // empty in BSP
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, ValueGuardStatistics> rejected_ ABSL_GUARDED_BY(mutex_);  // by table number
  std::vector<ParkedPull> parked_pulls_ ABSL_GUARDED_BY(mutex_);
  // Of BSP, where trainers wait for each other:
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the open step's pushes
  std::vector<Done> waiting_commits_ ABSL_GUARDED_BY(mutex_);
  std::vector<WaitingNorm> waiting_norms_ ABSL_GUARDED_BY(mutex_);
  bool norm_posted_ ABSL_GUARDED_BY(mutex_) = false;             // of the open step
  std::optional<absl::uint128> norm_ ABSL_GUARDED_BY(mutex_);  // of the open step, once known
  uint64_t norm_trace_id_ ABSL_GUARDED_BY(mutex_) = 0;           // of the open step, the last given; like the commit's
  uint64_t commit_trace_id_ ABSL_GUARDED_BY(mutex_) = 0;
  TableWorkers workers_;  // last, so that it ends first: what workers still run then uses all of the above
};

}  // namespace tandem::ps
