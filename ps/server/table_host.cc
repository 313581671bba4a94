#include "ps/server/table_host.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "ps/store/table.h"
#include "ps/wire/saturating.h"

namespace tandem::ps {
namespace {

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

}  // namespace

TableHost::~TableHost() {
  Fail(absl::CancelledError("the parameter server is closing"));
  workers_.Stop();
}

void TableHost::PostPull(ParkedPull pull) {
  ++counts_.pulls;
  counts_.pulled_rows += pull.num_rows;
  workers_.PostToOwners(
      std::move(pull.shares),
      [create = pull.create, step = pull.step](Table& table, const TableWorkers::Share& share) {
        const auto& [ids, positions] = share.owned;
        if (share.sums != nullptr)
          table.PullSums(step, ids, create, positions, *share.sums);
        else if (share.versions == nullptr)
          table.Pull(step, ids, create, share.rows, positions, share.format);
        else
          table.PullChanged(step, ids, create, share.read_bound, share.versions, share.rows,
                            positions, share.format);
      },
      [done = std::move(pull.done)] { done(absl::OkStatus()); },
      WorkSpan(SpanKind::PULL, "gather_rows", pull.step, pull.trace_id));
}

void TableHost::Pull(const std::optional<Caller>& caller, uint64_t step, bool create,
                     const std::vector<PullPart>& parts, Done done, uint64_t trace_id) {
  absl::Status refused = [&]() -> absl::Status {
    ShardSet touched;
    ParkedPull pull{caller, step, TableWorkers::Shares(workers_.size()), create, done, trace_id};
    for (const PullPart& part : parts) {
      ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
      pull.num_rows += static_cast<uint64_t>(part.count);
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
      PostPull(std::move(pull));
    else
      RETURN_IF_ERROR(parked_pulls_.Add(std::move(pull)));
    return absl::OkStatus();
  }();
  if (!refused.ok()) done(refused);
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
                                     std::shared_ptr<const void> owner, const Done& done,
                                     uint64_t trace_id) {
  TableWorkers::Shares shares(workers_.size());
  ShardSet touched;
  // The table whose part has a gradient that is not finite, for id wrong_id.
  std::shared_ptr<const TableSpec> rejects;
  uint64_t wrong_id = 0;
  for (const PushPart& part : parts) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const TableSpec> spec, FindSpec(part.table));
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
    held_.Add(place.trainer, place.step, {place.slice, order, std::move(shares), std::move(owner)});
    return true;
  }
  workers_.PostToOwners(
      std::move(shares),
      [slice = place.slice, order, owner = std::move(owner)](Table& table,
                                                             const TableWorkers::Share& share) {
        table.Accumulate(slice, order, share.owned.ids, share.gradients, owner,
                         share.owned.positions);
      },
      [done] { done(absl::OkStatus()); },
      WorkSpan(SpanKind::PUSH, "accumulate", place.step, trace_id));
  return false;
}

void TableHost::Accumulate(const PushPlace& place, const std::vector<PushPart>& parts,
                           std::shared_ptr<const void> owner, Done done, uint64_t trace_id) {
  const absl::StatusOr<bool> taken = Take(place, parts, std::move(owner), done, trace_id);
  if (!taken.ok() || *taken) done(taken.status());
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
    } else if (open_step_.norm().has_value()) {
      answer = *open_step_.norm();
    } else {
      open_step_.AwaitNorm(step, done, trace_id);
      if (*verdict == ConsistencyController::RoundVerdict::COMPLETE) PostNorm(step);
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
      WorkSpan(SpanKind::COMMIT, "gradient_norm", step, open_step_.PostNorm()));
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
    answered = open_step_.FinishNorm(step, norm, controller_.applied() + 1 == step);
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
      ASSIGN_OR_RETURN(const ConsistencyController::RoundVerdict verdict,
                       controller_.AdmitCommit(caller, args));
      if (verdict == ConsistencyController::RoundVerdict::PAST) {
        // The answer to the first commit was lost. Answers again when the workers have finished.
        workers_.PostToAll([](TableWorker&) {}, [done] { done(absl::OkStatus()); });
        return absl::OkStatus();
      }
      if (!controller_.sums_trainers()) {
        PostCommitOf(caller.trainer, args, done, trace_id);
        return absl::OkStatus();
      }
      open_step_.AwaitCommit(done, trace_id);
      if (verdict == ConsistencyController::RoundVerdict::COMPLETE) PostCommit(args, &later);
      return absl::OkStatus();
    }();
    if (!refused.ok()) later.push_back([done, refused] { done(refused); });
    // Trainers disagree, so no commit can succeed.
    if (!controller_.has_commits() && !refused.ok()) {
      for (const Done& waiting : open_step_.DropCommits())
        later.push_back([waiting, refused] { waiting(refused); });
    }
  }
  for (auto& callback : later) callback();
}

void TableHost::PostCommit(const CommitArgs& args, Callbacks* later) {
  ++counts_.commits;
  OpenStep::Ended ended = open_step_.End();
  const auto results = std::make_shared<std::vector<absl::Status>>(workers_.size());
  workers_.PostToAll(
      [args, results](TableWorker& worker) {
        (*results)[static_cast<size_t>(worker.number())] = CommitPending(args, worker);
      },
      [this, results, waiting = std::move(ended.commits)] {
        const absl::Status status = FinishCommit(*results);
        for (const Done& done : waiting) done(status);
      },
      WorkSpan(SpanKind::COMMIT, "apply_step", args.step, ended.trace_id));
  for (OpenStep::WaitingNorm& waiting : ended.norms) {
    later->push_back([done = std::move(waiting.done), step = waiting.step] {
      done(absl::FailedPreconditionError(absl::StrCat(
          "step ", step, " was committed before every trainer asked for its gradient norm")));
    });
  }
  PostParkedPulls();
}

void TableHost::PostCommitOf(uint32_t trainer, const CommitArgs& args, Done done,
                             uint64_t trace_id) {
  ++counts_.commits;
  const auto results = std::make_shared<std::vector<absl::Status>>(workers_.size());
  workers_.PostToAll(
      [args, results, pushes = held_.Take(trainer, args.step)](TableWorker& worker) {
        AccumulateHeld(pushes, worker);
        (*results)[static_cast<size_t>(worker.number())] = CommitPending(args, worker);
      },
      [this, results, done = std::move(done)] { done(FinishCommit(*results)); },
      WorkSpan(SpanKind::COMMIT, "apply_step", args.step, trace_id));
  PostParkedPulls();
}

absl::Status TableHost::FinishCommit(const std::vector<absl::Status>& results) {
  absl::Status overflow;
  for (const absl::Status& result : results) overflow.Update(result);
  if (!overflow.ok()) Fail(overflow);
  return overflow;
}

void TableHost::PostParkedPulls() {
  for (ParkedPull& pull :
       parked_pulls_.Take([this](const ParkedPull& parked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
         return controller_.AdmitWaitingPull(parked.caller, parked.step);
       })) {
    PostPull(std::move(pull));
  }
}

void TableHost::Fail(absl::Status reason) {
  TANDEM_CHECK(!reason.ok());
  std::vector<ParkedPull> pulls;
  std::vector<Done> commits;
  std::vector<OpenStep::WaitingNorm> norms;
  {
    absl::MutexLock lock(&mutex_);
    if (!failed_.ok()) return;
    failed_ = reason;
    pulls = parked_pulls_.Take([](const ParkedPull&) { return true; });
    commits = open_step_.DropCommits();
    norms = open_step_.TakeUnposted();
  }
  for (ParkedPull& pull : pulls) pull.done(reason);
  for (Done& done : commits) done(reason);
  for (OpenStep::WaitingNorm& norm : norms) norm.done(reason);
}

}  // namespace tandem::ps
