// The worker threads of a host. Each owns some virtual shards (TableWorker::Owns): a call's ids are cut into one share for
// each worker, and no row needs a lock.
// Thread rule: any thread; who needs an order between two posts holds a lock over both. Nothing blocks but destruction,
// which waits for what is in the mailboxes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/trace/trace.h"
#include "ps/wire/router.h"
#include "ps/store/shared_sums.h"
#include "ps/server/table_worker.h"
#include "ps/wire/wire_rows.h"
#include "rpc/role_trace.h"

namespace tandem::ps {

class TableWorkers {
 public:
  // One worker's part of a pull's or push's segment.
  struct Share {
    uint32_t table = 0;
    OwnedIds owned = {};
    void* rows = nullptr;             // of the whole segment, in `format`; owned.positions say which
    WireFormat format = WIRE_F32;
    WireRows gradients = {};          // of the whole segment, too
    uint32_t* versions = nullptr;     // likewise; null: every row is pulled
    uint32_t read_bound = 0;
    // Of the whole segment, for each id: which of `gradients` is its, instead of the one at its place; ids may then repeat.
    const uint32_t* row_of = nullptr;
    // Of a pull that adds up rows (AddSums), ids of which may repeat: a sole worker adds the row of owned.ids[i], times weights[i] (f32 at
    // any alignment; null: 1), to the one of `sums` that owned.positions[i] says; several do it together.
    float* sums = nullptr;
    const void* weights = nullptr;
    std::shared_ptr<SharedSums> shared_sums = nullptr;
  };
  using Shares = std::vector<std::vector<Share>>;  // by worker

  // What a call has posted without waking all for it. Whoever gives one runs it when he holds no lock any more.
  class Posted {
   public:
    void Run() {
      if (worker_ != nullptr) std::exchange(worker_, nullptr)->RunPosted();
    }

   private:
    friend class TableWorkers;
    TableWorker* worker_ = nullptr;
  };

  explicit TableWorkers(int count);

  size_t size() const { return workers_.size(); }
  // Checks one segment's ids (InvalidArgument) and adds each worker's share of it, otherwise as `values`, and its virtual shards to
  // `touched`. REQUIRES: shares->size() == size().
  absl::Status AddShares(const TableSpec& spec, const void* ids, size_t count, const Share& values, Shares* shares,
                         ShardSet* touched) const;
  // Likewise each worker's share in adding each id's row, times its weight, to the one of `sums` that row_of says, which ascends. What they
  // point to stays until the task has run.
  absl::Status AddSums(const TableSpec& spec, const void* ids, size_t count, const uint32_t* row_of, const void* weights, float* sums,
                       Shares* shares, ShardSet* touched) const;
  // Takes the ids of all other virtual shards away.
  static void KeepShards(const ShardSet& kept, Shares* shares);
  // Runs `task` on every worker, or on those with a share, and then `then` on the last to finish. Each records `span`, if it
  // has a trace_id. With `posted`, one worker is not woken.
  void PostToAll(std::function<void(TableWorker&)> task, std::function<void()> then, const Span& span = {}, Posted* posted = nullptr);
  void PostToOwners(Shares shares, std::function<void(Table&, const Share&)> task, std::function<void()> then,
                    const Span& span, Posted* posted = nullptr);

  Tracer& tracer() { return tracer_; }

 private:
  absl::StatusOr<std::vector<OwnedIds>> Split(const TableSpec& spec, const void* ids, size_t count, ShardSet* touched,
                                              bool distinct) const;
  TraceSpan SpanOf(const TableWorker& worker, const Span& span) {
    return TraceSpan(span.trace_id == 0 ? nullptr : &tracer_, span, trace_rows_[static_cast<size_t>(worker.number())]);
  }
  // The first worker that is posted to is the one not woken.
  static void Post(TableWorker& worker, std::function<void()> task, Posted* posted);

  Tracer tracer_{rpc::kMaxServerSpans};
  std::vector<uint32_t> trace_rows_;  // by worker
  const Router router_;
  std::vector<std::unique_ptr<TableWorker>> workers_;
};

}  // namespace tandem::ps
