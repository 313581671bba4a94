#include "ps/server/table_workers.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "ps/store/table.h"
#include "ps/wire/step.h"

namespace tandem::ps {
namespace {

// Counts the workers of one call. The last worker to arrive runs `then`.
class Countdown {
 public:
  Countdown(int count, std::function<void()> then) : remaining_(count), then_(std::move(then)) {}
  void Arrive() {
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) then_();
  }

 private:
  std::atomic<int> remaining_;
  std::function<void()> then_;
};

}  // namespace

TableWorkers::TableWorkers(int count) : router_(Router::RoundRobin(count)) {
  for (int i = 0; i < count; ++i) {
    trace_rows_.push_back(tracer_.MakeRow(absl::StrCat("rows ", i)));
    workers_.push_back(std::make_unique<TableWorker>(i, count));
  }
}

absl::StatusOr<std::vector<OwnedIds>> TableWorkers::Split(const TableSpec& spec, const void* ids,
                                                          size_t count, ShardSet* touched,
                                                          bool distinct) const {
  if (count > std::numeric_limits<size_t>::max() / sizeof(float) / spec.dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name(), ": ", count, " ids in one segment"));
  }
  return router_.Split(spec.number(), spec.name(), ids, count, touched, distinct);
}

absl::Status TableWorkers::AddShares(const TableSpec& spec, const void* ids, size_t count,
                                     const Share& values, Shares* shares, ShardSet* touched) const {
  const bool distinct = values.row_of == nullptr;
  ASSIGN_OR_RETURN(std::vector<OwnedIds> owned, Split(spec, ids, count, touched, distinct));
  for (size_t worker = 0; worker < owned.size(); ++worker) {
    if (owned[worker].ids.empty()) continue;
    Share& share = (*shares)[worker].emplace_back(values);
    share.table = spec.number();
    share.owned = std::move(owned[worker]);
    if (distinct) continue;
    std::vector<uint32_t>& positions = share.owned.positions;
    if (positions.empty())
      positions.assign(values.row_of, values.row_of + count);
    else
      for (uint32_t& position : positions) position = values.row_of[position];
  }
  return absl::OkStatus();
}

absl::Status TableWorkers::AddSums(const TableSpec& spec, const void* ids, size_t count,
                                   const uint32_t* row_of, const void* weights, float* sums,
                                   Shares* shares, ShardSet* touched) const {
  ASSIGN_OR_RETURN(std::vector<OwnedIds> owned,
                   Split(spec, ids, count, touched, /*distinct=*/false));
  const auto busy = std::count_if(owned.begin(), owned.end(),
                                  [](const OwnedIds& of_worker) { return !of_worker.ids.empty(); });
  const auto shared = std::make_shared<SharedSums>(count, spec.dim(), row_of, weights, sums,
                                                   static_cast<int>(busy));
  for (size_t worker = 0; worker < owned.size(); ++worker) {
    if (owned[worker].ids.empty()) continue;
    (*shares)[worker].push_back(
        {.table = spec.number(), .owned = std::move(owned[worker]), .sums = shared});
  }
  return absl::OkStatus();
}

void TableWorkers::KeepShards(const ShardSet& kept, Shares* shares) {
  for (auto& of_worker : *shares) {
    for (Share& share : of_worker) {
      OwnedIds owned;
      for (size_t i = 0; i < share.owned.ids.size(); ++i) {
        if (!kept.test(rpc::VirtualShard(share.table, share.owned.ids[i]))) continue;
        owned.ids.push_back(share.owned.ids[i]);
        owned.positions.push_back(share.owned.positions.empty() ? static_cast<uint32_t>(i)
                                                                : share.owned.positions[i]);
      }
      share.owned = std::move(owned);
    }
    std::erase_if(of_worker, [](const Share& share) { return share.owned.ids.empty(); });
  }
}

void TableWorkers::PostToAll(std::function<void(TableWorker&)> task, std::function<void()> then,
                             const Span& span) {
  auto countdown = std::make_shared<Countdown>(static_cast<int>(workers_.size()), std::move(then));
  for (auto& worker : workers_) {
    worker->Post([this, span, task, countdown, worker = worker.get()] {
      {
        const TraceSpan recorded = SpanOf(*worker, span);
        task(*worker);
      }
      countdown->Arrive();
    });
  }
}

void TableWorkers::PostToOwners(Shares shares, std::function<void(Table&, const Share&)> task,
                                std::function<void()> then, const Span& span) {
  int busy = 0;
  for (const auto& of_worker : shares) busy += !of_worker.empty();
  // A call without rows still waits its turn at the first worker.
  auto countdown = std::make_shared<Countdown>(std::max(busy, 1), std::move(then));
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (shares[i].empty() && (busy > 0 || i > 0)) continue;
    workers_[i]->Post(
        [this, span, task, countdown, worker = workers_[i].get(), mine = std::move(shares[i])] {
          {
            TraceSpan recorded = SpanOf(*worker, span);
            for (const Share& share : mine) {
              Table& table = *worker->tables().at(share.table);
              task(table, share);
              recorded.AddBytes(
                  static_cast<double>(CallBytes(share.owned.ids.size(), table.spec().dim())));
            }
          }
          countdown->Arrive();
        });
  }
}

}  // namespace tandem::ps
