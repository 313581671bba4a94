// The tables of one server process, on worker threads (TableWorkers). Calls are checked, cut by
// owner and posted to the workers' mailboxes under one short lock. Mailboxes are first in, first
// out, and this order alone orders a step. A push posted before a commit is part of the commit, and
// a pull posted after a commit sees it. ConsistencyController decides who waits for whom. In BSP a
// push goes to the workers at once; in other modes it waits for its trainer's commit (HeldPushes).
// Thread rule: any thread calls, without a lock that callbacks take. Nothing blocks, but a short
// call may run before it returns. A callback runs exactly once, on any thread, never under the
// host's lock.
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
#include "ps/server/consistency_controller.h"
#include "ps/server/held_pushes.h"
#include "ps/server/table_files.h"
#include "ps/server/table_specs.h"
#include "ps/server/table_workers.h"
#include "ps/wire/step.h"
#include "ps/wire/value_guard.h"

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

class TableHost {
 public:
  using Done = std::function<void(absl::Status)>;
  // Limit on one trainer's pulls that wait for their step. A client has at most some dozens on
  // their way.
  static constexpr size_t kMaxParkedPulls = 1024;
  // Limit on the bytes of ids and rows of a short pull, push or commit. A short call takes at most
  // half a millisecond, so waking a thread for it would show. Longer calls gain more if the
  // caller's thread receives the next call meanwhile. Calls for DENSE_EQUIVALENT tables are never
  // short, because their rows run every step that they have missed.
  static constexpr size_t kShortCallBytes = size_t{2} << 20;

  explicit TableHost(int num_workers) : workers_(num_workers) {}
  size_t num_workers() const { return workers_.size(); }
  // Completes parked calls with Cancelled and waits for the workers to finish their tasks.
  ~TableHost();
  TableHost(const TableHost&) = delete;
  TableHost& operator=(const TableHost&) = delete;

  // From now on refuses calls that name an id of another virtual shard: FailedPrecondition, "not
  // the owner, map version n". Without Own the host owns all shards.
  // REQUIRES: no other call came before.
  void Own(const ShardSet& shards, uint32_t shard_map_version);

  // Repeatable. FailedPrecondition if a table, the number of trainers or the consistency is known
  // already and differs.
  void CreateTables(const std::vector<TableSpec>& tables, uint32_t num_trainers, Done done,
                    const ConsistencySpec& consistency = {});
  // Returns the dim of a table, to size a reply. InvalidArgument if the table does not exist.
  absl::StatusOr<uint32_t> Dim(uint32_t table) const;
  // InvalidArgument unless rows of `width` numbers may be assigned and read (CheckRowWidth).
  absl::Status CheckWidth(uint32_t table, size_t width) const;

  // Like Client::Assign and Client::Read. `ids` u64[count] are read before the call returns.
  // `values` [count, width] are used until the callback.
  void Assign(uint32_t table, const void* ids, size_t count, const void* values, size_t width,
              Done done);
  void Read(uint32_t table, const void* ids, size_t count, float* values, size_t width, Done done);

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
  // Accumulate and Commit together. A refused push commits nothing. A push is also refused if its
  // commit could not follow, by its step or its rates. If another trainer's commit contradicts this
  // commit (BSP), the push stays.
  void AccumulateAndCommit(const PushPlace& place, const std::vector<PushPart>& parts,
                           std::shared_ptr<const void> owner, const CommitArgs& args, Done done,
                           uint64_t trace_id = 0);
  void GradientNorm(const Caller& caller, uint64_t step,
                    std::function<void(absl::StatusOr<absl::uint128>)> done, uint64_t trace_id = 0);
  void Commit(const Caller& caller, const CommitArgs& args, Done done, uint64_t trace_id = 0);
  void Hash(std::function<void(absl::StatusOr<HashResult>)> done);
  void Statistics(std::function<void(absl::StatusOr<StatisticsReply>)> done);
  // Every worker writes its rows of every table into `folder` (ps/server/checkpoint.h) and answers
  // nothing else meanwhile. Also saves the windows of pushes, for servers that load them in the
  // same job. Epoch 0 means no job, without windows.
  void Save(uint64_t step, const std::string& folder, uint64_t job_epoch,
            std::function<void(absl::StatusOr<std::vector<SavedFile>>)> done,
            uint64_t trace_id = 0);
  // Replaces the tables' contents by saved rows and makes args.step the last applied step. Workers
  // first read into new tables. These replace the old tables once all workers have found the files
  // in order. InvalidArgument or FailedPrecondition like CheckLoadArgs, LoadTables and
  // ConsistencyController::CheckLoad. Repeatable until another call comes.
  void Load(const LoadArgs& args, Done done);
  // Completes every parked call, and every later call, with `reason`.
  // REQUIRES: !reason.ok().
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
  // Counts of messages; for commits, counts of applied steps.
  struct Counts {
    uint64_t pulls = 0, pushes = 0, repeated_pushes = 0, commits = 0;
  };
  struct WaitingNorm {
    uint64_t step;
    NormDone done;
  };
  // Collected under the lock, run after its release.
  using Callbacks = std::vector<std::function<void()>>;

  absl::StatusOr<std::shared_ptr<const TableSpec>> FindSpec(uint32_t table) const;
  // The set in which a call's virtual shards are noted for CheckOwned. Null if this server owns all
  // shards.
  ShardSet* Noted(ShardSet* touched) const { return owned_.all() ? nullptr : touched; }
  // FailedPrecondition, naming an id of `shares`, if another server owns a virtual shard in
  // `touched`.
  absl::Status CheckOwned(const ShardSet& touched, const TableWorkers::Shares& shares) const;
  // Returns each worker's share of rows to assign or read.
  absl::StatusOr<TableWorkers::Shares> SharesOf(uint32_t table, const void* ids, size_t count,
                                                size_t width) const;
  // Assigns rows that every worker has checked.
  // REQUIRES: no row differs.
  absl::Status AssignChecked(TableWorkers::Shares shares, const void* values, size_t width,
                             Done done);
  absl::Status CheckTrainers(uint32_t num_trainers, const ConsistencySpec& consistency) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Takes a push, unless it is refused. `commit`, if not null, is to follow the push. Returns true
  // if the push is finished for now, false if `done` runs when workers have added the push.
  absl::StatusOr<bool> Take(const PushPlace& place, const std::vector<PushPart>& parts,
                            std::shared_ptr<const void> owner, const CommitArgs* commit,
                            const Done& done, uint64_t trace_id, TableWorkers::Posted* posted);
  void PostPull(ParkedPull pull, TableWorkers::Posted* posted = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Parks a pull. ResourceExhausted if its trainer has kMaxParkedPulls parked pulls.
  absl::Status Park(ParkedPull pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Posts the parked pulls that need not wait any longer.
  void PostParkedPulls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns OutOfRange for a push whose gradient of `id` is not finite in a table that rejects such
  // gradients. The error names row, trainer and step.
  absl::Status Reject(const TableSpec& spec, uint64_t id, const PushPlace& place,
                      const ShardSet& shards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostNorm(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommit(const CommitArgs& args, Callbacks* later, TableWorkers::Posted* posted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Norm and commit of one trainer alone.
  void PostNormOf(uint32_t trainer, uint64_t step, NormDone done, uint64_t trace_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostCommitOf(uint32_t trainer, const CommitArgs& args, Done done, uint64_t trace_id,
                    TableWorkers::Posted* posted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns Ok if every worker's CommitPending was Ok. Otherwise the host fails, because its rows
  // are of two steps.
  absl::Status FinishCommit(const std::vector<absl::Status>& results);
  void FinishNorm(uint64_t step, absl::uint128 norm);
  void FinishLoad(uint64_t step, std::shared_ptr<std::vector<absl::StatusOr<LoadedTables>>> loaded,
                  const Done& done);

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
  // State of BSP, where trainers wait for each other:
  size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the open step's pushes
  std::vector<Done> waiting_commits_ ABSL_GUARDED_BY(mutex_);
  std::vector<WaitingNorm> waiting_norms_ ABSL_GUARDED_BY(mutex_);
  bool norm_posted_ ABSL_GUARDED_BY(mutex_) = false;           // the open step's norm was posted
  std::optional<absl::uint128> norm_ ABSL_GUARDED_BY(mutex_);  // the open step's norm, once known
  // The last trace_id given in the open step, for the norm and for the commit.
  uint64_t norm_trace_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t commit_trace_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Last, so that it is destroyed first: running tasks use the members above.
  TableWorkers workers_;
};

}  // namespace tandem::ps
