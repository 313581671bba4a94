// Operations on whole tables, outside the steps: create, assign, read, save, load, hash, count,
// trace. Every implementer of RowClient implements TableAdmin for the same tables.
// Thread rule: same as RowClient. Save and Load take deadlines, because file sizes decide their
// duration.
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
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"
#include "rpc/future.h"

namespace tandem {
class RoleTrace;        // proto/trace.pb.h
class SavedFile;        // proto/embedding.pb.h
class StatisticsReply;  // proto/embedding.pb.h
class TableSpec;        // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

// Whole rows of a dense table (TableSpec.dense): `values` [ids.size(), width]. The width is the
// table's dim, or all numbers of a row: weights, then optimizer slots.
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

  // Creates the tables.
  // REQUIRES: every trainer calls once, before any other call, with the same arguments.
  virtual absl::Status CreateTables(const std::vector<TableSpec>& tables,
                                    absl::Duration timeout) = 0;
  // Gives a dense table's rows their first values. Slots that are not given start anew. Blocks.
  // FailedPrecondition if a row already has other values or a step has begun.
  // REQUIRES: one trainer calls, after CreateTables or Load, before any other call of any trainer.
  virtual absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) = 0;
  // Reads the current rows of a dense table. Blocks. FailedPrecondition if a row was never
  // assigned.
  virtual absl::Status Read(const RowsToRead& rows, absl::Time deadline) = 0;
  // Writes all rows ever committed into `folder`. Returns the files (ps/server/checkpoint.h), which
  // are on disk then. FailedPrecondition unless `step` is the last applied step of every trainer.
  // REQUIRES: `folder` is an existing absolute path that servers see too.
  // REQUIRES: one trainer calls, before its Commit of step + 1, so that all rows are of one moment.
  virtual rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                                   absl::Time deadline) = 0;
  // Puts the rows of `files`, which Save wrote into `folder`, back into their tables. Any number of
  // servers may have written them. Makes `step` the last applied step. FailedPrecondition names a
  // file that does not fit its table.
  // REQUIRES: one trainer calls, after CreateTables and before any other call of any trainer.
  // REQUIRES: the caller has checked the files' checksums.
  virtual rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder,
                                      const std::vector<std::string>& files,
                                      absl::Time deadline) = 0;
  // Returns the sparse share of params_hash, summed over servers.
  virtual rpc::Future<HashResult> Hash() = 0;
  // Returns counts of what servers hold and have done for all callers, added up, plus this client's
  // OwnStatistics.
  virtual rpc::Future<StatisticsReply> Statistics() = 0;
  // Returns the part of Statistics that servers do not know: gradients that this client refused,
  // dropped or mended. It covers this trainer only; add other trainers' parts with MergeStatistics.
  virtual StatisticsReply OwnStatistics() const;

  // Records the pulls, pushes, norms, commits and saves of steps `first` to `last`. Each span lasts
  // from call to completion. Servers record their work for these calls too. A null `tracer` ends
  // recording.
  // REQUIRES: called before the first call of these steps.
  virtual void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) = 0;
  // Takes what servers recorded for all callers since the last TakeTraces, in this machine's clock.
  // Blocks.
  virtual absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) = 0;
  // Returns the servers' table for a table given to CreateTables. The two differ where the
  // optimizer runs in the client (GeoClient).
  virtual TableSpec StoredSpec(const TableSpec& table) const;
  // Returns report lines on the whole run, from this client and the clients that it wraps.
  virtual std::vector<std::string> Report() const { return {}; }
};

}  // namespace tandem::ps
