// The tables of one server process on worker threads, as a whole: create, assign, read, hash,
// count, save and load. TableHost adds the verbs of a step.
// Thread rule: any thread calls, without a lock that callbacks take. Nothing blocks. A callback
// runs exactly once, on any thread, never under the host's lock.
// Invariant: a refused call changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/trace/trace.h"
#include "ps/server/consistency_controller.h"
#include "ps/server/table_files.h"
#include "ps/server/table_specs.h"
#include "ps/server/table_workers.h"
#include "ps/wire/step.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {

// The span of a worker's share of a call.
Span WorkSpan(SpanKind kind, const char* name, uint64_t step, uint64_t trace_id);

class HostedTables {
 public:
  using Done = std::function<void(absl::Status)>;

  explicit HostedTables(int num_workers) : workers_(num_workers) {}
  HostedTables(const HostedTables&) = delete;
  HostedTables& operator=(const HostedTables&) = delete;

  Tracer& tracer() { return workers_.tracer(); }
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

  // Like TableAdmin::Assign and TableAdmin::Read. `ids` u64[count] are read before the call
  // returns. `values` [count, width] are used until the callback.
  void Assign(uint32_t table, const void* ids, size_t count, const void* values, size_t width,
              Done done);
  void Read(uint32_t table, const void* ids, size_t count, float* values, size_t width, Done done);

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

 protected:
  // Counts of messages; for commits, counts of applied steps.
  struct Counts {
    uint64_t pulls = 0, pulled_rows = 0, pushes = 0, repeated_pushes = 0, commits = 0;
  };

  ~HostedTables() = default;

  absl::StatusOr<std::shared_ptr<const TableSpec>> FindSpec(uint32_t table) const;
  // The set in which a call's virtual shards are noted for CheckOwned. Null if this server owns all
  // shards.
  ShardSet* Noted(ShardSet* touched) const { return owned_.all() ? nullptr : touched; }
  // FailedPrecondition, naming an id of `shares`, if another server owns a virtual shard in
  // `touched`.
  absl::Status CheckOwned(const ShardSet& touched, const TableWorkers::Shares& shares) const;

  mutable absl::Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // refuses every call, if not OK
  TableSpecs specs_ ABSL_GUARDED_BY(mutex_);
  ConsistencyController controller_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, ValueGuardStatistics> rejected_ ABSL_GUARDED_BY(mutex_);  // by table number
  TableWorkers workers_;

 private:
  absl::Status CheckTrainers(uint32_t num_trainers, const ConsistencySpec& consistency) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Returns each worker's share of rows to assign or read.
  absl::StatusOr<TableWorkers::Shares> SharesOf(uint32_t table, const void* ids, size_t count,
                                                size_t width) const;
  // Assigns rows that every worker has checked.
  // REQUIRES: no row differs.
  absl::Status AssignChecked(TableWorkers::Shares shares, const void* values, size_t width,
                             Done done);
  void FinishLoad(uint64_t step, std::shared_ptr<std::vector<absl::StatusOr<LoadedTables>>> loaded,
                  const Done& done);

  ShardSet owned_ = ShardSet().set();
  uint32_t shard_map_version_ = 0;
};

}  // namespace tandem::ps
