#include "ps/server/table_host.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/store/table.h"
#include "ps/wire/saturating.h"

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

// Returns an id whose gradient is not finite. If the gradient is that of a bag without ids, returns
// a neighbour's id.
std::optional<uint64_t> FindWrongId(const PushPart& part, uint32_t dim) {
  const std::optional<size_t> wrong = FindNonFinite(part.gradients, part.num_gradients, dim);
  if (!wrong.has_value() || part.count == 0) return std::nullopt;
  size_t place = *wrong;
  if (part.row_of != nullptr) {
    place = static_cast<size_t>(
        std::lower_bound(part.row_of, part.row_of + part.count - 1, *wrong) - part.row_of);
  }
  uint64_t id;
  std::memcpy(&id, static_cast<const char*>(part.ids) + place * sizeof(id), sizeof(id));
  return id;
}

absl::Status NotOwner(uint32_t shard_map_version, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "not the owner, map version ", shard_map_version, ": ", what, ", which is another server's"));
}

// The bytes that decide if a call for `count` rows is short.
size_t WorkBytes(const TableSpec& spec, size_t count) {
  const size_t num_bytes = CallBytes(count, spec.dim());
  return spec.mode() == TableSpec::DENSE_EQUIVALENT
             ? std::max(num_bytes, TableHost::kShortCallBytes + 1)
             : num_bytes;
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

TableHost::~TableHost() { Fail(absl::CancelledError("the parameter server is closing")); }

void TableHost::Own(const ShardSet& shards, uint32_t shard_map_version) {
  owned_ = shards;
  shard_map_version_ = shard_map_version;
}

absl::Status TableHost::CheckOwned(const ShardSet& touched,
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

absl::Status TableHost::CheckTrainers(uint32_t num_trainers,
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

void TableHost::CreateTables(const std::vector<TableSpec>& tables, uint32_t num_trainers, Done done,
                             const ConsistencySpec& consistency) {
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

absl::StatusOr<TableWorkers::Shares> TableHost::SharesOf(uint32_t table, const void* ids,
                                                         size_t count, size_t width) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  RETURN_IF_ERROR(CheckRowWidth(*spec, width));
  TableWorkers::Shares shares(workers_.size());
  ShardSet touched;
  RETURN_IF_ERROR(workers_.AddShares(*spec, ids, count, {}, &shares, Noted(&touched)));
  RETURN_IF_ERROR(CheckOwned(touched, shares));
  return shares;
}

void TableHost::Assign(uint32_t table, const void* ids, size_t count, const void* values,
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

absl::Status TableHost::AssignChecked(TableWorkers::Shares shares, const void* values, size_t width,
                                      Done done) {
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

void TableHost::Read(uint32_t table, const void* ids, size_t count, float* values, size_t width,
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

absl::StatusOr<std::shared_ptr<const TableSpec>> TableHost::FindSpec(uint32_t table) const {
  absl::ReaderMutexLock lock(&mutex_);
  RETURN_IF_ERROR(failed_);
  return specs_.Find(table);
}

absl::StatusOr<uint32_t> TableHost::Dim(uint32_t table) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  return spec->dim();
}

absl::Status TableHost::CheckWidth(uint32_t table, size_t width) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(table));
  return CheckRowWidth(*spec, width);
}

void TableHost::PostPull(ParkedPull pull, TableWorkers::Posted* posted) {
  ++counts_.pulls;
  workers_.PostToOwners(
      std::move(pull.shares),
      [create = pull.create, step = pull.step](Table& table, const TableWorkers::Share& share) {
        const auto& [ids, positions] = share.owned;
        if (share.shared_sums != nullptr)
          table.PullShared(step, ids, create, positions, *share.shared_sums);
        else if (share.sums != nullptr)
          table.PullSums(step, ids, create, positions, share.weights, share.sums);
        else if (share.versions == nullptr)
          table.Pull(step, ids, create, share.rows, positions, share.format);
        else
          table.PullChanged(step, ids, create, share.read_bound, share.versions, share.rows,
                            positions, share.format);
      },
      [done = std::move(pull.done)] { done(absl::OkStatus()); },
      WorkSpan(SpanKind::PULL, "gather_rows", pull.step, pull.trace_id), posted);
}

void TableHost::Pull(const std::optional<Caller>& caller, uint64_t step, bool create,
                     const std::vector<PullPart>& parts, Done done, uint64_t trace_id) {
  TableWorkers::Posted posted;
  absl::Status refused = [&]() -> absl::Status {
    size_t num_bytes = 0;
    ShardSet touched;
    ParkedPull pull{caller, step, TableWorkers::Shares(workers_.size()), create, done, trace_id};
    for (const PullPart& part : parts) {
      ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
      num_bytes += WorkBytes(*spec, part.count);
      if (part.row_of != nullptr) {
        RETURN_IF_ERROR(workers_.AddSums(*spec, part.ids, part.count, part.row_of, part.weights,
                                         static_cast<float*>(part.rows), &pull.shares,
                                         Noted(&touched)));
        continue;
      }
      const TableWorkers::Share values{.rows = part.rows,
                                       .format = part.format,
                                       .versions = part.versions,
                                       .read_bound = part.read_bound};
      RETURN_IF_ERROR(
          workers_.AddShares(*spec, part.ids, part.count, values, &pull.shares, Noted(&touched)));
    }
    RETURN_IF_ERROR(CheckOwned(touched, pull.shares));
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    ASSIGN_OR_RETURN(const ConsistencyController::PullVerdict verdict,
                     controller_.AdmitPull(caller, step));
    if (verdict == ConsistencyController::PullVerdict::NOW)
      PostPull(std::move(pull), num_bytes <= kShortCallBytes ? &posted : nullptr);
    else
      RETURN_IF_ERROR(Park(std::move(pull)));
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
  posted.Run();
}

absl::Status TableHost::Park(ParkedPull pull) {
  const auto trainer = [](const ParkedPull& of) {
    return of.caller.has_value() ? std::optional(of.caller->trainer) : std::nullopt;
  };
  const auto waiting =
      std::count_if(parked_pulls_.begin(), parked_pulls_.end(),
                    [&](const ParkedPull& other) { return trainer(other) == trainer(pull); });
  if (static_cast<size_t>(waiting) >= kMaxParkedPulls) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "pull for step ", pull.step, ": ", waiting, " pulls of ",
        pull.caller.has_value() ? absl::StrCat("trainer ", pull.caller->trainer) : "no trainer",
        " wait for their step already"));
  }
  parked_pulls_.push_back(std::move(pull));
  return absl::OkStatus();
}

absl::Status TableHost::Reject(const TableSpec& spec, uint64_t id, const PushPlace& place,
                               const ShardSet& shards) {
  // Counts only a push that is otherwise admissible, so no stranger's or mistimed push becomes the
  // first offender. Asks a copy of the controller, so the controller itself does not change.
  const Caller caller{place.trainer, place.incarnation};
  const bool counts = ConsistencyController(controller_)
                          .AdmitPush(caller, place.step, place.sequence, shards, place.covered)
                          .ok();
  ValueGuardStatistics ignored;
  return (counts ? rejected_[spec.number()] : ignored)
      .NoteRejected(spec.name(), {id, place.trainer, place.step});
}

absl::StatusOr<bool> TableHost::Take(const PushPlace& place, const std::vector<PushPart>& parts,
                                     std::shared_ptr<const void> owner, const CommitArgs* commit,
                                     const Done& done, uint64_t trace_id,
                                     TableWorkers::Posted* posted) {
  TableWorkers::Shares shares(workers_.size());
  size_t num_bytes = 0;
  ShardSet touched;
  // The table whose part has a gradient that is not finite, for id wrong_id.
  std::shared_ptr<const TableSpec> rejects;
  uint64_t wrong_id = 0;
  for (const PushPart& part : parts) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
    num_bytes += WorkBytes(*spec, part.count);
    const TableWorkers::Share values{.gradients = part.gradients, .row_of = part.row_of};
    RETURN_IF_ERROR(workers_.AddShares(*spec, part.ids, part.count, values, &shares, &touched));
    if (rejects != nullptr || spec->non_finite() != TableSpec::REJECT) continue;
    const std::optional<uint64_t> wrong = FindWrongId(part, spec->dim());
    if (wrong.has_value()) rejects = spec;
    wrong_id = wrong.value_or(0);
  }
  RETURN_IF_ERROR(CheckOwned(touched, shares));
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failed_);
  if (rejects != nullptr) return Reject(*rejects, wrong_id, place, touched);
  const Caller caller{place.trainer, place.incarnation};
  if (commit != nullptr) {
    RETURN_IF_ERROR(specs_.CheckRates(*commit));
    RETURN_IF_ERROR(controller_.CheckCommit(caller, commit->step));
  }
  ASSIGN_OR_RETURN(const ShardSet fresh, controller_.AdmitPush(caller, place.step, place.sequence,
                                                               touched, place.covered));
  const bool known = fresh.none();  // the push was accumulated when it came first
  // A push without ids counts as new every time.
  ++(known && touched.any() ? counts_.repeated_pushes : counts_.pushes);
  if (known) return true;
  if (fresh != touched) TableWorkers::KeepShards(fresh, &shares);
  // Trainer and sequence share the 64 bits that order pushes within a slice.
  const uint64_t order = uint64_t{place.trainer} << kSequenceBits | place.sequence;
  if (!controller_.sums_trainers()) {
    held_.Add(place.trainer, place.step,
              {place.slice, order, std::move(shares), num_bytes, std::move(owner)});
    return true;
  }
  pending_bytes_ += num_bytes;
  workers_.PostToOwners(
      std::move(shares),
      [slice = place.slice, order, owner = std::move(owner)](Table& table,
                                                             const TableWorkers::Share& share) {
        table.Accumulate(slice, order, share.owned.ids, share.gradients, owner,
                         share.owned.positions);
      },
      [done] { done(absl::OkStatus()); },
      WorkSpan(SpanKind::PUSH, "accumulate", place.step, trace_id),
      num_bytes <= kShortCallBytes ? posted : nullptr);
  return false;
}

void TableHost::Accumulate(const PushPlace& place, const std::vector<PushPart>& parts,
                           std::shared_ptr<const void> owner, Done done, uint64_t trace_id) {
  TableWorkers::Posted posted;
  const absl::StatusOr<bool> taken =
      Take(place, parts, std::move(owner), nullptr, done, trace_id, &posted);
  if (!taken.ok() || *taken) done(taken.status());
  posted.Run();
}

void TableHost::AccumulateAndCommit(const PushPlace& place, const std::vector<PushPart>& parts,
                                    std::shared_ptr<const void> owner, const CommitArgs& args,
                                    Done done, uint64_t trace_id) {
  // The push's tasks run before the commit's.
  TableWorkers::Posted posted;
  const absl::StatusOr<bool> taken = Take(
      place, parts, std::move(owner), &args, [](const absl::Status&) {}, trace_id, &posted);
  posted.Run();
  if (!taken.ok()) return done(taken.status());
  Commit({place.trainer, place.incarnation}, args, std::move(done), trace_id);
}

void TableHost::GradientNorm(const Caller& caller, uint64_t step, NormDone done,
                             uint64_t trace_id) {
  absl::StatusOr<absl::uint128> answer = absl::UnknownError("waiting");
  const bool answered = [&] {
    absl::MutexLock lock(&mutex_);
    if (!failed_.ok()) {
      answer = failed_;
      return true;
    }
    const auto verdict = controller_.AdmitNorm(caller, step);
    if (!verdict.ok()) {
      answer = verdict.status();
    } else if (*verdict == ConsistencyController::RoundVerdict::PAST) {
      answer = absl::FailedPreconditionError(
          absl::StrCat("gradient norm of step ", step, ", which is applied"));
    } else if (!controller_.sums_trainers()) {
      PostNormOf(caller.trainer, step, done, trace_id);
      return false;
    } else if (norm_.has_value()) {
      answer = *norm_;
    } else {
      waiting_norms_.push_back({step, done});
      if (trace_id != 0) norm_trace_id_ = trace_id;
      if (*verdict == ConsistencyController::RoundVerdict::COMPLETE) {
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
        for (auto& [number, table] : worker.tables())
          total = SaturatingAdd(total, table->GradientNorm());
        (*norms)[static_cast<size_t>(worker.number())] = total;
      },
      [this, norms, step] {
        absl::uint128 total = 0;
        for (absl::uint128 norm : *norms) total = SaturatingAdd(total, norm);
        FinishNorm(step, total);
      },
      WorkSpan(SpanKind::COMMIT, "gradient_norm", step, std::exchange(norm_trace_id_, 0)));
}

void TableHost::PostNormOf(uint32_t trainer, uint64_t step, NormDone done, uint64_t trace_id) {
  auto norms = std::make_shared<std::vector<absl::uint128>>(workers_.size());
  workers_.PostToAll(
      [norms, pushes = held_.Find(trainer, step)](TableWorker& worker) {
        (*norms)[static_cast<size_t>(worker.number())] = NormOfHeld(pushes, worker);
      },
      [norms, done = std::move(done)] {
        done(std::accumulate(norms->begin(), norms->end(), absl::uint128{0}, SaturatingAdd));
      },
      WorkSpan(SpanKind::COMMIT, "gradient_norm", step, trace_id));
}

void TableHost::FinishNorm(uint64_t step, absl::uint128 norm) {
  std::vector<NormDone> answered;
  {
    absl::MutexLock lock(&mutex_);
    if (controller_.applied() + 1 == step) norm_ = norm;
    std::vector<WaitingNorm> others;
    for (WaitingNorm& waiting : waiting_norms_) {
      if (waiting.step == step)
        answered.push_back(std::move(waiting.done));
      else
        others.push_back(std::move(waiting));
    }
    waiting_norms_ = std::move(others);
  }
  for (NormDone& done : answered) done(norm);
}

void TableHost::Commit(const Caller& caller, const CommitArgs& args, Done done, uint64_t trace_id) {
  Callbacks later;
  TableWorkers::Posted posted;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status refused = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::Status {
      RETURN_IF_ERROR(failed_);
      RETURN_IF_ERROR(specs_.CheckRates(args));
      ASSIGN_OR_RETURN(const ConsistencyController::RoundVerdict verdict,
                       controller_.AdmitCommit(caller, args));
      if (verdict == ConsistencyController::RoundVerdict::PAST) {
        // The answer to the first commit was lost. Answers again when the workers have finished.
        workers_.PostToAll([](TableWorker&) {}, [done] { done(absl::OkStatus()); });
        return absl::OkStatus();
      }
      if (!controller_.sums_trainers()) {
        PostCommitOf(caller.trainer, args, done, trace_id, &posted);
        return absl::OkStatus();
      }
      waiting_commits_.push_back(done);
      if (trace_id != 0) commit_trace_id_ = trace_id;
      if (verdict == ConsistencyController::RoundVerdict::COMPLETE)
        PostCommit(args, &later, &posted);
      return absl::OkStatus();
    }();
    if (!refused.ok()) later.push_back([done, refused] { done(refused); });
    // Trainers disagree, so no commit can succeed.
    if (!controller_.has_commits() && !refused.ok()) {
      for (Done& waiting : waiting_commits_)
        later.push_back([waiting, refused] { waiting(refused); });
      waiting_commits_.clear();
      commit_trace_id_ = 0;
    }
  }
  for (auto& callback : later) callback();
  posted.Run();
}

void TableHost::PostCommit(const CommitArgs& args, Callbacks* later, TableWorkers::Posted* posted) {
  ++counts_.commits;
  const auto results = std::make_shared<std::vector<absl::Status>>(workers_.size());
  workers_.PostToAll(
      [args, results](TableWorker& worker) {
        (*results)[static_cast<size_t>(worker.number())] = CommitPending(args, worker);
      },
      [this, results, waiting = std::move(waiting_commits_)] {
        const absl::Status status = FinishCommit(*results);
        for (const Done& done : waiting) done(status);
      },
      WorkSpan(SpanKind::COMMIT, "apply_step", args.step, std::exchange(commit_trace_id_, 0)),
      std::exchange(pending_bytes_, 0) <= kShortCallBytes ? posted : nullptr);
  waiting_commits_.clear();
  if (!norm_posted_) {
    for (WaitingNorm& waiting : waiting_norms_) {
      later->push_back([done = std::move(waiting.done), step = waiting.step] {
        done(absl::FailedPreconditionError(absl::StrCat(
            "step ", step, " was committed before every trainer asked for its gradient norm")));
      });
    }
    waiting_norms_.clear();
  }
  norm_posted_ = false;
  norm_trace_id_ = 0;
  norm_.reset();
  PostParkedPulls();
}

void TableHost::PostCommitOf(uint32_t trainer, const CommitArgs& args, Done done, uint64_t trace_id,
                             TableWorkers::Posted* posted) {
  ++counts_.commits;
  StepPushes pushes = held_.Take(trainer, args.step);
  size_t num_bytes = 0;
  for (const auto& push : pushes) num_bytes += push->num_bytes;
  const auto results = std::make_shared<std::vector<absl::Status>>(workers_.size());
  workers_.PostToAll(
      [args, results, pushes = std::move(pushes)](TableWorker& worker) {
        AccumulateHeld(pushes, worker);
        (*results)[static_cast<size_t>(worker.number())] = CommitPending(args, worker);
      },
      [this, results, done = std::move(done)] { done(FinishCommit(*results)); },
      WorkSpan(SpanKind::COMMIT, "apply_step", args.step, trace_id),
      num_bytes <= kShortCallBytes ? posted : nullptr);
  PostParkedPulls();
}

absl::Status TableHost::FinishCommit(const std::vector<absl::Status>& results) {
  absl::Status overflow;
  for (const absl::Status& result : results) overflow.Update(result);
  if (!overflow.ok()) Fail(overflow);
  return overflow;
}

void TableHost::PostParkedPulls() {
  std::vector<ParkedPull> parked = std::move(parked_pulls_);
  parked_pulls_.clear();
  for (ParkedPull& pull : parked) {
    if (controller_.AdmitWaitingPull(pull.caller, pull.step))
      PostPull(std::move(pull));
    else
      parked_pulls_.push_back(std::move(pull));
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

void TableHost::Statistics(std::function<void(absl::StatusOr<StatisticsReply>)> done) {
  absl::Status refused = [&]() -> absl::Status {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failed_);
    StatisticsReply common;
    common.set_pulls(counts_.pulls);
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

void TableHost::Save(uint64_t step, const std::string& folder, uint64_t job_epoch,
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

void TableHost::Load(const LoadArgs& args, Done done) {
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

void TableHost::FinishLoad(uint64_t step,
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
