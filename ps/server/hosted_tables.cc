#include "ps/server/hosted_tables.h"

#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "ps/store/spec_check.h"
#include "ps/store/table.h"

namespace tandem::ps {
namespace {

// The first id that a worker found wrong.
class FirstId {
 public:
  void Set(uint64_t id) {
    uint64_t none = 0;
    id_.compare_exchange_strong(none, id);
  }
  absl::Status Refuse(const char* why) const {
    if (id_ == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("row ", id_.load(), " ", why));
  }

 private:
  std::atomic<uint64_t> id_{0};  // 0 is no row
};

// Calls visit(id, pointer to its row in `values`) for each row of a share. A row has `width`
// elements.
template <class T, class Visit>
void ForEachValue(const TableWorkers::Share& share, T* values, size_t width, const Visit& visit) {
  for (size_t i = 0; i < share.owned.ids.size(); ++i) {
    visit(share.owned.ids[i],
          values + (share.owned.positions.empty() ? i : share.owned.positions[i]) * width);
  }
}

absl::Status NotOwner(uint32_t shard_map_version, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "not the owner, map version ", shard_map_version, ": ", what, ", which is another server's"));
}

// DENSE_EQUIVALENT requires BSP. In other modes a step is not one update of all rows, so a gradient
// of zero has no step.
absl::Status CheckModes(const std::vector<TableSpec>& tables, const ConsistencySpec& consistency) {
  for (const TableSpec& spec : tables) {
    if (spec.mode() != TableSpec::DENSE_EQUIVALENT || consistency.mode() == ConsistencySpec::BSP)
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name(),
                     ": mode is DENSE_EQUIVALENT, must be LAZY or CATCH_UP with consistency ",
                     ConsistencySpec::Mode_Name(consistency.mode())));
  }
  return absl::OkStatus();
}

}  // namespace

Span WorkSpan(SpanKind kind, const char* name, uint64_t step, uint64_t trace_id) {
  Span span;
  span.name = name;
  span.kind = kind;
  span.step = step;
  span.trace_id = trace_id;
  return span;
}

void HostedTables::Own(const ShardSet& shards, uint32_t shard_map_version) {
  owned_ = shards;
  shard_map_version_ = shard_map_version;
}

absl::Status HostedTables::CheckOwned(const ShardSet& touched,
                                      const TableWorkers::Shares& shares) const {
  if ((touched & ~owned_).none()) return absl::OkStatus();
  for (const auto& of_worker : shares) {
    for (const TableWorkers::Share& share : of_worker) {
      for (const uint64_t id : share.owned.ids) {
        const uint32_t shard = rpc::VirtualShard(share.table, id);
        if (!owned_.test(shard))
          return NotOwner(shard_map_version_, absl::StrCat("id ", id, " of table ", share.table,
                                                           " is in virtual shard ", shard));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status HostedTables::CheckTrainers(uint32_t num_trainers,
                                         const ConsistencySpec& consistency) const {
  if (num_trainers == 0 || num_trainers >= 1u << (64 - kSequenceBits)) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_trainers is ", num_trainers, ", must be 1 to 2^24 - 1"));
  }
  RETURN_IF_ERROR(CheckConsistency(consistency));
  if (controller_.num_trainers() == 0) return absl::OkStatus();
  if (controller_.num_trainers() != num_trainers) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has ", controller_.num_trainers(), " trainers, this request says ", num_trainers));
  }
  const ConsistencySpec& known = controller_.consistency();
  if (known.mode() == consistency.mode() && known.staleness() == consistency.staleness())
    return absl::OkStatus();
  const auto describe = [](const ConsistencySpec& spec) {
    return absl::StrCat(ConsistencySpec::Mode_Name(spec.mode()), " with staleness ",
                        spec.staleness());
  };
  return absl::FailedPreconditionError(absl::StrCat("the job's consistency is ", describe(known),
                                                    ", this request says ", describe(consistency)));
}

void HostedTables::CreateTables(const std::vector<TableSpec>& tables, uint32_t num_trainers,
                                Done done, const ConsistencySpec& consistency) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(CheckTrainers(num_trainers, consistency));
    RETURN_IF_ERROR(specs_.Check(tables));
    RETURN_IF_ERROR(CheckModes(tables, consistency));
    controller_.SetTrainers(num_trainers, consistency);
    workers_.PostToAll(
        [created = specs_.Add(tables)](TableWorker& worker) {
          for (const auto& spec : created)
            worker.tables()[spec->number()] = std::make_unique<Table>(*spec);
        },
        [done] { done(absl::OkStatus()); });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

absl::StatusOr<TableWorkers::Shares> HostedTables::SharesOf(uint32_t table, const void* ids,
                                                            size_t count, size_t width) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  RETURN_IF_ERROR(CheckRowWidth(*spec, width));
  TableWorkers::Shares shares(workers_.size());
  ShardSet touched;
  RETURN_IF_ERROR(workers_.AddShares(*spec, ids, count, {}, &shares, Noted(&touched)));
  RETURN_IF_ERROR(CheckOwned(touched, shares));
  return shares;
}

void HostedTables::Assign(uint32_t table, const void* ids, size_t count, const void* values,
                          size_t width, Done done) {
  absl::Status refused = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(TableWorkers::Shares shares, SharesOf(table, ids, count, width));
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    // All workers check before any worker writes, so a refusal changes nothing.
    const auto different = std::make_shared<FirstId>();
    workers_.PostToOwners(
        shares,
        [values, width, different](Table& table, const TableWorkers::Share& share) {
          ForEachValue(share, static_cast<const char*>(values), width * sizeof(float),
                       [&](uint64_t id, const char* row) {
                         if (table.Differs(id, row, width)) different->Set(id);
                       });
        },
        [this, shares, values, width, different, done] {
          absl::Status status = different->Refuse("has other values already: it is assigned once");
          if (status.ok()) status = AssignChecked(shares, values, width, done);
          if (!status.ok()) done(status);
        },
        {});
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

absl::Status HostedTables::AssignChecked(TableWorkers::Shares shares, const void* values,
                                         size_t width, Done done) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failed_);
  if (!controller_.CheckLoad(controller_.applied()).ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rows cannot be assigned: training has begun, ", controller_.applied(),
                     " steps are applied; assign before any other call"));
  }
  workers_.PostToOwners(
      std::move(shares),
      [values, width, step = controller_.applied()](Table& table,
                                                    const TableWorkers::Share& share) {
        ForEachValue(share, static_cast<const char*>(values), width * sizeof(float),
                     [&](uint64_t id, const char* row) { table.Assign(id, row, width, step); });
      },
      [done = std::move(done)] { done(absl::OkStatus()); }, {});
  return absl::OkStatus();
}

void HostedTables::Read(uint32_t table, const void* ids, size_t count, float* values, size_t width,
                        Done done) {
  absl::Status refused = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(TableWorkers::Shares shares, SharesOf(table, ids, count, width));
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    const auto absent = std::make_shared<FirstId>();
    workers_.PostToOwners(
        std::move(shares),
        [values, width, absent](Table& table, const TableWorkers::Share& share) {
          ForEachValue(share, values, width, [&](uint64_t id, float* row) {
            if (!table.Read(id, row, width)) absent->Set(id);
          });
        },
        [absent, done] { done(absent->Refuse("was never assigned")); }, {});
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

absl::StatusOr<std::shared_ptr<const TableSpec>> HostedTables::FindSpec(uint32_t table) const {
  absl::ReaderMutexLock lock(&mutex_);
  RETURN_IF_ERROR(failed_);
  return specs_.Find(table);
}

absl::StatusOr<uint32_t> HostedTables::Dim(uint32_t table) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  return spec->dim();
}

absl::Status HostedTables::CheckWidth(uint32_t table, size_t width) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  return CheckRowWidth(*spec, width);
}

void HostedTables::Hash(std::function<void(absl::StatusOr<HashResult>)> done) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    auto results = std::make_shared<std::vector<HashResult>>(workers_.size());
    workers_.PostToAll(
        [results](TableWorker& worker) {
          HashResult& mine = (*results)[static_cast<size_t>(worker.number())];
          for (auto& [number, table] : worker.tables()) {
            const HashResult part = table->Hash();
            mine.hash += part.hash;
            mine.num_rows += part.num_rows;
          }
        },
        [results, done] {
          HashResult total;
          for (const HashResult& part : *results) {
            total.hash += part.hash;
            total.num_rows += part.num_rows;
          }
          done(total);
        });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void HostedTables::Statistics(std::function<void(absl::StatusOr<StatisticsReply>)> done) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    StatisticsReply common;
    common.set_pulls(counts_.pulls);
    common.set_pulled_rows(counts_.pulled_rows);
    common.set_pushes(counts_.pushes);
    common.set_repeated_pushes(counts_.repeated_pushes);
    common.set_commits(counts_.commits);
    controller_.staleness().Save(common.mutable_staleness());
    controller_.outstanding().Save(common.mutable_outstanding());
    for (uint32_t trainer = 0; trainer < controller_.num_trainers(); ++trainer)
      common.add_clocks(controller_.clock(trainer));
    for (const auto& [number, guard] : rejected_) {
      *common.add_tables() = GuardStatistics(**specs_.Find(number), guard);
    }
    auto parts = std::make_shared<std::vector<StatisticsReply>>(workers_.size());
    workers_.PostToAll(
        [parts](TableWorker& worker) {
          for (auto& [number, table] : worker.tables()) {
            TableStatistics& of = *(*parts)[static_cast<size_t>(worker.number())].add_tables();
            of.set_name(table->spec().name());
            of.set_number(number);
            of.set_rows(table->num_rows());
            of.set_memory_bytes(table->memory_bytes());
            SetGuard(table->guarded(), &of);
            table->left_out().Save(of.mutable_left_out());
          }
        },
        [parts, done, total = std::move(common)]() mutable {
          for (const StatisticsReply& part : *parts) MergeStatistics(part, &total);
          done(std::move(total));
        });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void HostedTables::Save(uint64_t step, const std::string& folder, uint64_t job_epoch,
                        std::function<void(absl::StatusOr<std::vector<SavedFile>>)> done,
                        uint64_t trace_id) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(controller_.CheckSave(step));
    auto results = std::make_shared<std::vector<absl::StatusOr<std::vector<SavedFile>>>>(
        workers_.size(), std::vector<SavedFile>());
    const auto windows =
        std::make_shared<const SavedWindows>(SavedWindows{job_epoch, controller_.windows().Save()});
    workers_.PostToAll(
        [results, windows, folder](TableWorker& worker) {
          (*results)[static_cast<size_t>(worker.number())] =
              SaveTables(worker.tables(), *windows, folder,
                         [&worker](uint32_t shard) { return worker.Owns(shard); });
        },
        [results, done] {
          std::vector<SavedFile> files;
          for (const auto& result : *results) {
            if (!result.ok()) return done(result.status());
            files.insert(files.end(), result->begin(), result->end());
          }
          done(std::move(files));
        },
        WorkSpan(SpanKind::CHECKPOINT, "write_rows", step, trace_id));
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void HostedTables::Load(const LoadArgs& args, Done done) {
  absl::Status refused = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckLoadArgs(args));
    for (const ShardRange& range : args.shards) {
      for (uint32_t shard = range.first(); shard < range.first() + range.count(); ++shard) {
        if (!owned_.test(shard))
          return NotOwner(shard_map_version_, absl::StrCat("virtual shard ", shard));
      }
    }
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(controller_.CheckLoad(args.step));
    auto loaded = std::make_shared<std::vector<absl::StatusOr<LoadedTables>>>(workers_.size());
    workers_.PostToAll(
        [args, loaded](TableWorker& worker) {
          (*loaded)[static_cast<size_t>(worker.number())] = LoadTables(
              worker.tables(), args, [&worker](uint32_t shard) { return worker.Owns(shard); });
        },
        [this, step = args.step, loaded, done] { FinishLoad(step, loaded, done); });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void HostedTables::FinishLoad(uint64_t step,
                              std::shared_ptr<std::vector<absl::StatusOr<LoadedTables>>> loaded,
                              const Done& done) {
  absl::Status refused = [&]() -> absl::Status {
    std::vector<ShardWindow> windows;
    for (const auto& share : *loaded) {
      RETURN_IF_ERROR(share.status());
      windows.insert(windows.end(), share->windows.begin(), share->windows.end());
    }
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);  // after a failure nothing is posted: the workers may be ending
    RETURN_IF_ERROR(controller_.CheckLoad(step));
    RETURN_IF_ERROR(controller_.Load(step, windows));
    workers_.PostToAll(
        [loaded](TableWorker& worker) {
          // A table that was created meanwhile stays.
          for (auto& [number, table] : (*loaded)[static_cast<size_t>(worker.number())]->tables) {
            worker.tables()[number] = std::move(table);
          }
        },
        [done] { done(absl::OkStatus()); });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

}  // namespace tandem::ps
