// The worker threads of a host. Each worker owns some virtual shards (TableWorker::Owns). A call's
// ids are cut into one share for each worker, so no row needs a lock.
// Thread rule: any thread; to order two posts, hold a lock over both. Only Stop and destruction
// block: they wait for the tasks in the mailboxes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/trace/trace.h"
#include "ps/server/table_worker.h"
#include "ps/store/shared_sums.h"
#include "ps/wire/router.h"
#include "ps/wire/wire_rows.h"
#include "rpc/role_trace.h"

namespace tandem::ps {

class TableWorkers {
 public:
  // One worker's part of a segment of a pull or a push.
  struct Share {
    uint32_t table = 0;
    OwnedIds owned = {};
    // Rows of the whole segment, in `format`; owned.positions index them.
    void* rows = nullptr;
    WireFormat format = WIRE_F32;
    WireRows gradients = {};       // gradients of the whole segment
    uint32_t* versions = nullptr;  // versions of the whole segment; null: every row is pulled
    uint32_t read_bound = 0;
    // For each id of the whole segment: the index of its gradient in `gradients`. Null: the
    // gradient at the id's place. Ids may repeat if not null.
    const uint32_t* row_of = nullptr;
    // For a pull that sums rows (AddSums); ids may repeat. Null: the rows go to `rows`.
    std::shared_ptr<SharedSums> sums = nullptr;
  };
  using Shares = std::vector<std::vector<Share>>;  // by worker

  explicit TableWorkers(int count);
  // Runs the tasks in the mailboxes and ends the threads.
  // REQUIRES: nothing is posted any more.
  void Stop() { workers_.clear(); }

  size_t size() const { return workers_.size(); }
  // Checks one segment's ids (InvalidArgument) and adds each worker's share, with the other members
  // of `values`. Adds the virtual shards of the ids to `touched`.
  // REQUIRES: shares->size() == size().
  absl::Status AddShares(const TableSpec& spec, const void* ids, size_t count, const Share& values,
                         Shares* shares, ShardSet* touched) const;
  // Splits a pooled pull: sums[row_of[i]] += weights[i] * row(ids[i]). `row_of` is ascending.
  // Arrays must outlive the task.
  absl::Status AddSums(const TableSpec& spec, const void* ids, size_t count, const uint32_t* row_of,
                       const void* weights, float* sums, Shares* shares, ShardSet* touched) const;
  // Removes the ids of all other virtual shards from `shares`.
  static void KeepShards(const ShardSet& kept, Shares* shares);
  // Runs `task` on every worker (PostToAll) or on workers with a share (PostToOwners), then `then`
  // on the last worker to finish. Each worker records `span` if `span` has a trace_id.
  void PostToAll(std::function<void(TableWorker&)> task, std::function<void()> then,
                 const Span& span = {});
  void PostToOwners(Shares shares, std::function<void(Table&, const Share&)> task,
                    std::function<void()> then, const Span& span);

  Tracer& tracer() { return tracer_; }

 private:
  absl::StatusOr<std::vector<OwnedIds>> Split(const TableSpec& spec, const void* ids, size_t count,
                                              ShardSet* touched, bool distinct) const;
  TraceSpan SpanOf(const TableWorker& worker, const Span& span) {
    return TraceSpan(span.trace_id == 0 ? nullptr : &tracer_, span,
                     trace_rows_[static_cast<size_t>(worker.number())]);
  }

  Tracer tracer_{rpc::kMaxServerSpans};
  std::vector<uint32_t> trace_rows_;  // by worker
  const Router router_;
  std::vector<std::unique_ptr<TableWorker>> workers_;
};

}  // namespace tandem::ps
