// What happens to tables as a whole, beside the steps: create, assign, read, save, load, hash, count, trace. Whoever implements RowClient
// implements this for the same tables.
// Thread rule: as RowClient. Save and Load have deadlines of their own, since files take as long as they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/trace/trace.h"
#include "proto/embedding.pb.h"
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"
#include "rpc/future.h"

namespace tandem::ps {

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

class TableAdmin {
 public:
  virtual ~TableAdmin() = default;

  // Every trainer calls it once, before anything else, with the same arguments.
  virtual absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) = 0;
  // Gives a dense table's rows their first values; without slots these begin anew. One trainer calls it, after CreateTables, or Load, and
  // before any other call of any trainer. Blocks. FailedPrecondition if a row has other values already or a step has begun.
  virtual absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) = 0;
  // Reads a dense table's rows as they are now. Blocks. FailedPrecondition if one was never assigned.
  virtual absl::Status Read(const RowsToRead& rows, absl::Time deadline) = 0;
  // Writes all rows ever committed into `folder`, an absolute path that exists and that servers see too. Returns the files
  // (ps/server/checkpoint.h), which are on disk then. One trainer calls it, before its Commit of step + 1, so that the rows are those of
  // one moment. FailedPrecondition unless `step` is the last one applied, of every trainer.
  virtual rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) = 0;
  // Puts rows that Save wrote, by any number of servers, back into their tables (those of `files`, in `folder`) and makes `step` the last
  // step applied. One trainer calls it, after CreateTables and before any other call of any trainer. The caller has checked the files'
  // checksums. FailedPrecondition names the file that does not fit its table.
  virtual rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder, const std::vector<std::string>& files,
                                      absl::Time deadline) = 0;
  // The sparse share of params_hash, summed over servers.
  virtual rpc::Future<HashResult> Hash() = 0;
  // Counts what servers hold and have done for all their callers, added up, and this client's OwnStatistics.
  virtual rpc::Future<StatisticsReply> Statistics() = 0;
  // The part of Statistics that servers do not know: the gradients that this client refused, dropped or mended itself. No other trainer is
  // told: add theirs by MergeStatistics.
  virtual StatisticsReply OwnStatistics() const { return {}; }

  // Records the pulls, pushes, norms, commits and saves of steps `first` to `last`, each from the call to its completion, and makes servers
  // record what they do for them. Before the first call of these steps. Null: nothing more.
  virtual void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) = 0;
  // Takes what servers have recorded since the last call, for all their callers, in this machine's clock. Blocks.
  virtual absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) = 0;
  // The servers' table that belongs to one of CreateTables. It differs where the optimizer runs in the client (GeoClient).
  virtual TableSpec StoredSpec(const TableSpec& table) const { return table; }
  // Lines on the whole run, of this client and of what it wraps.
  virtual std::vector<std::string> Report() const { return {}; }
};

}  // namespace tandem::ps
