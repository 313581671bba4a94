#include "ps/table_host.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/saturating.h"
#include "ps/table.h"

namespace tandem::ps {
namespace {

Span WorkSpan(SpanKind kind, const char* name, uint64_t step, uint64_t trace_id) {
  Span span;
  span.name = name;
  span.kind = kind;
  span.step = step;
  span.trace_id = trace_id;
  return span;
}

}  // namespace

TableHost::~TableHost() { Fail(absl::CancelledError("the parameter server is closing")); }

absl::Status TableHost::CheckTrainers(uint32_t num_trainers) const {
  if (num_trainers == 0 || num_trainers >= 1u << (64 - kSequenceBits)) {
    return absl::InvalidArgumentError(absl::StrCat("num_trainers is ", num_trainers, ", must be 1 to 2^24 - 1"));
  }
  if (gate_.num_trainers() == 0 || gate_.num_trainers() == num_trainers) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the job has ", gate_.num_trainers(), " trainers, this request says ", num_trainers));
}

void TableHost::CreateTables(const std::vector<TableSpec>& tables, uint32_t num_trainers, Done done) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(CheckTrainers(num_trainers));
    RETURN_IF_ERROR(specs_.Check(tables));
    gate_.SetTrainers(num_trainers);
    workers_.PostToAll(
        [created = specs_.Add(tables)](TableWorker& worker) {
          for (const auto& spec : created) worker.tables()[spec->number()] = std::make_unique<Table>(*spec);
        },
        [done] { done(absl::OkStatus()); });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

absl::StatusOr<std::shared_ptr<const TableSpec>> TableHost::FindSpec(uint32_t table) const {
  absl::ReaderMutexLock lock(&mutex_);
  RETURN_IF_ERROR(failed_);
  return specs_.Find(table);
}

absl::StatusOr<uint32_t> TableHost::Dim(uint32_t table) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  return spec->dim();
}

void TableHost::PostPull(ParkedPull pull) {
  workers_.PostToOwners(
      std::move(pull.shares),
      [create = pull.create](Table& table, const TableWorkers::Share& share) {
        table.Pull(share.owned.ids, create, share.rows, share.owned.positions, share.format);
      },
      [done = std::move(pull.done)] { done(absl::OkStatus()); },
      WorkSpan(SpanKind::PULL, "gather_rows", pull.step, pull.trace_id));
}

void TableHost::Pull(const std::optional<Caller>& caller, uint64_t step, bool create, const std::vector<PullPart>& parts,
                     Done done, uint64_t trace_id) {
  absl::Status refused = [&]() -> absl::Status {
    ParkedPull pull{step, TableWorkers::Shares(workers_.size()), create, done, trace_id};
    for (const PullPart& part : parts) {
      ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
      RETURN_IF_ERROR(workers_.AddShares(*spec, part.ids, part.count, part.rows, part.format, &pull.shares));
    }
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    ASSIGN_OR_RETURN(const StepGate::PullVerdict verdict, gate_.AdmitPull(caller, step));
    if (verdict == StepGate::PullVerdict::NOW) PostPull(std::move(pull));
    else parked_pulls_.push_back(std::move(pull));
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void TableHost::Accumulate(const PushPlace& place, const std::vector<PushPart>& parts,
                           std::shared_ptr<const void> owner, Done done, uint64_t trace_id) {
  bool repeated = false;
  absl::Status refused = [&]() -> absl::Status {
    TableWorkers::Shares shares(workers_.size());
    ShardSet touched;
    for (const PushPart& part : parts) {
      ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
      RETURN_IF_ERROR(workers_.AddShares(*spec, part.ids, part.count, part.gradients, &shares, &touched));
    }
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    const Caller caller{place.trainer, place.incarnation};
    ASSIGN_OR_RETURN(const ShardSet fresh, gate_.AdmitPush(caller, place.step, place.sequence, touched));
    repeated = fresh.none();
    if (repeated) return absl::OkStatus();
    if (fresh != touched) TableWorkers::KeepShards(fresh, &shares);
    // Trainer and sequence share the 64 bits that order pushes within a slice.
    const uint64_t order = uint64_t{place.trainer} << kSequenceBits | place.sequence;
    workers_.PostToOwners(
        std::move(shares),
        [slice = place.slice, order, owner = std::move(owner)](Table& table, const TableWorkers::Share& share) {
          table.Accumulate(slice, order, share.owned.ids, share.gradients, owner, share.owned.positions);
        },
        [done] { done(absl::OkStatus()); }, WorkSpan(SpanKind::PUSH, "accumulate", place.step, trace_id));
    return absl::OkStatus();
  }();
  if (repeated || !refused.ok()) done(refused);
}

void TableHost::GradientNorm(const Caller& caller, uint64_t step, NormDone done, uint64_t trace_id) {
  absl::StatusOr<absl::uint128> answer = absl::UnknownError("waiting");
  const bool answered = [&] {
    absl::MutexLock lock(&mutex_);
    if (!failed_.ok()) {
      answer = failed_;
      return true;
    }
    const auto verdict = gate_.AdmitNorm(caller, step);
    if (!verdict.ok()) {
      answer = verdict.status();
    } else if (*verdict == StepGate::RoundVerdict::PAST) {
      answer = absl::FailedPreconditionError(absl::StrCat("gradient norm of step ", step, ", which is applied"));
    } else if (norm_.has_value()) {
      answer = *norm_;
    } else {
      waiting_norms_.push_back({step, done});
      if (trace_id != 0) norm_trace_id_ = trace_id;
      if (*verdict == StepGate::RoundVerdict::COMPLETE) {
        norm_posted_ = true;
        PostNorm(step);
      }
      return false;
    }
    return true;
  }();
  if (answered) done(answer);
}

void TableHost::PostNorm(uint64_t step) {
  auto norms = std::make_shared<std::vector<absl::uint128>>(workers_.size());
  workers_.PostToAll(
      [norms](TableWorker& worker) {
        absl::uint128 total = 0;
        for (auto& [number, table] : worker.tables()) total = SaturatingAdd(total, table->GradientNorm());
        (*norms)[static_cast<size_t>(worker.number())] = total;
      },
      [this, norms, step] {
        absl::uint128 total = 0;
        for (absl::uint128 norm : *norms) total = SaturatingAdd(total, norm);
        FinishNorm(step, total);
      },
      WorkSpan(SpanKind::COMMIT, "gradient_norm", step, std::exchange(norm_trace_id_, 0)));
}

void TableHost::FinishNorm(uint64_t step, absl::uint128 norm) {
  std::vector<NormDone> answered;
  {
    absl::MutexLock lock(&mutex_);
    if (gate_.applied() + 1 == step) norm_ = norm;
    std::vector<WaitingNorm> others;
    for (WaitingNorm& waiting : waiting_norms_) {
      if (waiting.step == step) answered.push_back(std::move(waiting.done));
      else others.push_back(std::move(waiting));
    }
    waiting_norms_ = std::move(others);
  }
  for (NormDone& done : answered) done(norm);
}

void TableHost::Commit(const Caller& caller, const CommitArgs& args, Done done, uint64_t trace_id) {
  Callbacks later;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status refused = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
      RETURN_IF_ERROR(failed_);
      RETURN_IF_ERROR(specs_.CheckRates(args));
      ASSIGN_OR_RETURN(const StepGate::RoundVerdict verdict, gate_.AdmitCommit(caller, args));
      if (verdict == StepGate::RoundVerdict::PAST) {
        // The answer to the first try was lost: wait until the workers are through, then say so again.
        workers_.PostToAll([](TableWorker&) {}, [done] { done(absl::OkStatus()); });
        return absl::OkStatus();
      }
      waiting_commits_.push_back(done);
      if (trace_id != 0) commit_trace_id_ = trace_id;
      if (verdict == StepGate::RoundVerdict::COMPLETE) PostCommit(args, &later);
      return absl::OkStatus();
    }();
    if (!refused.ok()) later.push_back([done, refused] { done(refused); });
    if (!gate_.has_commits() && !refused.ok()) {  // trainers disagree: nobody's commit can succeed
      for (Done& waiting : waiting_commits_) later.push_back([waiting, refused] { waiting(refused); });
      waiting_commits_.clear();
      commit_trace_id_ = 0;
    }
  }
  for (auto& callback : later) callback();
}

void TableHost::PostCommit(const CommitArgs& args, Callbacks* later) {
  workers_.PostToAll(
      [args](TableWorker& worker) {
        std::map<uint32_t, float> rates;
        for (const TableRateValue& rate : args.rates) rates[rate.table] = rate.learning_rate;
        for (auto& [number, table] : worker.tables()) {
          table->Commit(args.step, rates[number], args.gradient_scale, args.skip);
        }
      },
      [waiting = std::move(waiting_commits_)] {
        for (const Done& done : waiting) done(absl::OkStatus());
      },
      WorkSpan(SpanKind::COMMIT, "apply_step", args.step, std::exchange(commit_trace_id_, 0)));
  waiting_commits_.clear();
  if (!norm_posted_) {
    for (WaitingNorm& waiting : waiting_norms_) {
      later->push_back([done = std::move(waiting.done), step = waiting.step] {
        done(absl::FailedPreconditionError(
            absl::StrCat("step ", step, " was committed before every trainer asked for its gradient norm")));
      });
    }
    waiting_norms_.clear();
  }
  norm_posted_ = false;
  norm_trace_id_ = 0;
  norm_.reset();
  std::vector<ParkedPull> parked = std::move(parked_pulls_);
  parked_pulls_.clear();
  for (ParkedPull& pull : parked) {
    if (pull.step == gate_.applied() + 1) PostPull(std::move(pull));
    else parked_pulls_.push_back(std::move(pull));
  }
}

void TableHost::Hash(std::function<void(absl::StatusOr<HashResult>)> done) {
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

void TableHost::Save(uint64_t step, const std::string& folder, uint64_t job_epoch,
                     std::function<void(absl::StatusOr<std::vector<SavedFile>>)> done, uint64_t trace_id) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    if (step != gate_.applied()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rows of step ", step, " cannot be saved: the last step applied is ", gate_.applied()));
    }
    auto results = std::make_shared<std::vector<absl::StatusOr<std::vector<SavedFile>>>>(
        workers_.size(), std::vector<SavedFile>());
    const auto windows = std::make_shared<const SavedWindows>(SavedWindows{job_epoch, gate_.windows().Save()});
    workers_.PostToAll(
        [results, windows, folder](TableWorker& worker) {
          (*results)[static_cast<size_t>(worker.number())] =
              SaveTables(worker.tables(), *windows, folder, [&worker](uint32_t shard) { return worker.Owns(shard); });
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

void TableHost::Load(const LoadArgs& args, Done done) {
  absl::Status refused = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckLoadArgs(args));
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    RETURN_IF_ERROR(gate_.CheckLoad(args.step));
    auto loaded = std::make_shared<std::vector<absl::StatusOr<LoadedTables>>>(workers_.size());
    workers_.PostToAll(
        [args, loaded](TableWorker& worker) {
          (*loaded)[static_cast<size_t>(worker.number())] =
              LoadTables(worker.tables(), args, [&worker](uint32_t shard) { return worker.Owns(shard); });
        },
        [this, step = args.step, loaded, done] { FinishLoad(step, loaded, done); });
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
}

void TableHost::FinishLoad(uint64_t step, std::shared_ptr<std::vector<absl::StatusOr<LoadedTables>>> loaded,
                           const Done& done) {
  absl::Status refused = [&]() -> absl::Status {
    std::vector<ShardWindow> windows;
    for (const auto& share : *loaded) {
      RETURN_IF_ERROR(share.status());
      windows.insert(windows.end(), share->windows.begin(), share->windows.end());
    }
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);  // after it nothing is posted: the workers may be ending
    RETURN_IF_ERROR(gate_.CheckLoad(step));
    RETURN_IF_ERROR(gate_.Load(step, windows));
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

void TableHost::Fail(absl::Status reason) {
  TANDEM_CHECK(!reason.ok());
  std::vector<ParkedPull> pulls;
  std::vector<Done> commits;
  std::vector<WaitingNorm> norms;
  {
    absl::MutexLock lock(&mutex_);
    if (!failed_.ok()) return;
    failed_ = reason;
    pulls.swap(parked_pulls_);
    commits.swap(waiting_commits_);
    if (!norm_posted_) norms.swap(waiting_norms_);
  }
  for (ParkedPull& pull : pulls) pull.done(reason);
  for (Done& done : commits) done(reason);
  for (WaitingNorm& norm : norms) norm.done(reason);
}

}  // namespace tandem::ps
