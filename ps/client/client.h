// The verbs of the sparse half, for a trainer: pull rows, accumulate gradients, commit the step (core.md 1). Two
// implementations: RemoteClient (sharded over servers, gRPC) and LocalClient (a TableHost in this process). They give
// the same bits. Thread rule: one thread calls; futures complete on others. Buffers given to a call stay alive and
// untouched until its future completes. Files take as long as they take: Save and Load have deadlines of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/trace/trace.h"
#include "proto/embedding.pb.h"
#include "ps/wire/bags.h"
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"
#include "rpc/future.h"

namespace tandem::ps {

// Part of a pull: rows of one table, written to `rows` [ids.size(), dim] in the order of `ids`.
struct PullSegment {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  float* rows = nullptr;
  // For a caller that keeps rows, [ids.size()]: the version + 1 of the row that it has, 0 for none. A row is then written only if it
  // was committed more than `read_bound` times since. Afterwards: that of the row written, 0 where none was. Null: all are written.
  uint32_t* versions = nullptr;
  uint32_t read_bound = 0;
};

// Part of a push: gradients [ids.size(), dim], one row per id.
struct PushSegment {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  const float* gradients = nullptr;
  // Keeps the gradients alive. They may be sent from where they lie: nobody writes to them before its last copy has gone, which may be
  // later than the push completes. Null: what is needed later is copied.
  std::shared_ptr<const void> owner = nullptr;
};

// Whole rows of a dense table (TableSpec.dense): `values` [ids.size(), width]. A width is the table's dim or, with the optimizer's slots
// behind the weights, all numbers of a row.
struct RowsToAssign {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  size_t width = 0;
  const float* values = nullptr;
};
struct RowsToRead {
  uint32_t table = 0;
  absl::Span<const uint64_t> ids;  // distinct, none 0
  size_t width = 0;
  float* values = nullptr;
};

class Client {
 public:
  virtual ~Client() = default;

  // Every trainer calls it once, before anything else, with the same arguments.
  virtual absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) = 0;
  // Gives a dense table's rows their first values; without slots these begin anew. One trainer calls it, after CreateTables, or Load, and
  // before any other call of any trainer. Blocks. FailedPrecondition if a row has other values already or a step has begun.
  virtual absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) = 0;
  // A dense table's rows as they are now. Blocks. FailedPrecondition if one was never assigned.
  virtual absl::Status Read(const RowsToRead& rows, absl::Time deadline) = 0;
  // Rows as they are after step - 1 was applied on their server, or as stale as the job's consistency allows (step 0: as they are
  // now).
  virtual rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) = 0;
  // `slice` is this push's place in the step's summation order.
  virtual rpc::Future<rpc::Done> Accumulate(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) = 0;
  // Draws a name for a push of this trainer, for AccumulateMerged.
  virtual PushName NamePush() = 0;
  // A push, in slice 0, of gradients of several trainers, added up already: those of names[0], which is this trainer's, and of the others'
  // pushes. A server has each name once for a virtual shard: what all calls with these names have of a shard is in one of them. BSP only.
  virtual rpc::Future<rpc::Done> AccumulateMerged(uint64_t step, const std::vector<PushName>& names,
                                                  std::vector<PushSegment> segments) = 0;
  // A row for each bag, `pooled` [bags, dim], in the order of the ids. Tables that are elsewhere pool there: their parts of a bag are
  // added in the order of the servers. By default rows are pulled and pooled here. `dim` is the table's.
  virtual rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled);
  // Accumulate, for the rows of bags whose gradients are [bags, dim].
  virtual rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients);
  // Squared norm of the gradients that all trainers accumulated for `step`, summed per row. Unsigned fixed point, 64
  // fraction bits. Every trainer calls it, after its own Accumulate futures completed, or none does. In modes other than BSP (see
  // ConsistencySpec) it is of this trainer's gradients, and waits for nobody.
  virtual rpc::Future<absl::uint128> GradientNorm(uint64_t step) = 0;
  // Completes when every server has applied the step, which in BSP needs the commit of every trainer. In the order of steps: not before
  // the last one has completed.
  virtual rpc::Future<rpc::Done> Commit(const CommitArgs& args) = 0;
  // The two together, of a step that is pushed at once: the one message of the classic push, where there is one server and one message
  // holds it. Fails as either.
  virtual rpc::Future<rpc::Done> AccumulateAndCommit(uint32_t slice, std::vector<PushSegment> segments, const CommitArgs& args);
  // The sparse share of params_hash (core.md 9), summed over servers.
  virtual rpc::Future<HashResult> Hash() = 0;
  // What servers hold and have done, for all their callers, added up; with this client's OwnStatistics.
  virtual rpc::Future<StatisticsReply> Statistics() = 0;
  // Of that, what servers do not know: the gradients that this client refused, dropped or mended itself. No other trainer is told: add
  // theirs by MergeStatistics.
  virtual StatisticsReply OwnStatistics() const { return {}; }
  // Writes all rows ever committed into `folder`, an absolute path that exists and that servers see too, and returns the
  // files (ps/server/checkpoint.h), which are on disk then. One trainer calls it, before its Commit of step + 1, so that the rows are
  // those of one moment. FailedPrecondition unless `step` is the last one applied, of every trainer.
  virtual rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) = 0;
  // Puts rows that Save wrote, by any number of servers, back into their tables (those of `files`, in `folder`) and makes `step`
  // the last step applied. One trainer calls it, after CreateTables and before any other call of any trainer. The caller has
  // checked the files' checksums. FailedPrecondition names the file that does not fit its table.
  virtual rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder, const std::vector<std::string>& files,
                                      absl::Time deadline) = 0;
  // Fails everything in flight and to come with `reason`.
  virtual void Abort(absl::Status reason) = 0;

  // Records the pulls, pushes, norms, commits and saves of steps `first` to `last`, each from the call to its completion, and
  // makes servers record what they do for them. Before the first call of these steps. Null: nothing more.
  virtual void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) {
    tracer_ = std::move(tracer);
    first_traced_ = first;
    last_traced_ = last;
  }
  // What servers have recorded since the last call, for all their callers, in this machine's clock. Blocks.
  virtual absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) = 0;
  // What the servers' table is that belongs to one of CreateTables; another where its optimizer runs elsewhere (geo_client).
  virtual TableSpec StoredSpec(const TableSpec& table) const { return table; }
  // Lines on the whole run, of this client and of what it wraps.
  virtual std::vector<std::string> Report() const { return {}; }

 protected:
  // Of trainer `trainer`'s call that begins now; does nothing unless the step is traced.
  ConcurrentSpan TraceCall(uint32_t trainer, SpanKind kind, const char* name, uint64_t step) {
    if (tracer_ == nullptr || step < first_traced_ || step > last_traced_) return {};
    Span span;
    span.name = name;
    span.kind = kind;
    span.step = step;
    span.trace_id = uint64_t{trainer + 1} << 40 | tracer_->NextCall();  // no other trainer's
    return {tracer_, span};
  }

 private:
  std::shared_ptr<Tracer> tracer_;
  uint64_t first_traced_ = 0, last_traced_ = 0;
};

}  // namespace tandem::ps
