#include "ps/server/consistency_controller.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace tandem::ps {
namespace {

// Compares bits, not values, so that NaN equals itself and every difference that params_hash would
// see is found.
bool SameArgs(const CommitArgs& a, const CommitArgs& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  return a.skip == b.skip && same(a.gradient_scale, b.gradient_scale) &&
         std::equal(a.rates.begin(), a.rates.end(), b.rates.begin(), b.rates.end(),
                    [&](const TableRateValue& x, const TableRateValue& y) {
                      return x.table == y.table && same(x.learning_rate, y.learning_rate);
                    });
}

std::string Describe(const CommitArgs& args) {
  return absl::StrCat("scale ", args.gradient_scale, args.skip ? ", skip" : "", ", rates {",
                      absl::StrJoin(args.rates, ", ",
                                    [](std::string* out, const TableRateValue& rate) {
                                      absl::StrAppend(out, rate.table, ": ", rate.learning_rate);
                                    }),
                      "}");
}

bool IsSequence(uint64_t sequence) { return sequence != 0 && sequence >> kSequenceBits == 0; }
constexpr char kSequenceRule[] = "; sequences count from 1 to 2^40 - 1";

template <class... Why>
absl::Status RefusePush(const PushName& push, uint64_t step, const Why&... why) {
  return absl::FailedPreconditionError(absl::StrCat("push ", push.sequence, " of trainer ",
                                                    push.trainer, " for step ", step, " ", why...));
}

}  // namespace

absl::Status CheckConsistency(const ConsistencySpec& consistency) {
  const uint32_t staleness = consistency.staleness();
  switch (consistency.mode()) {
    case ConsistencySpec::BSP:
    case ConsistencySpec::ASP:
      if (staleness == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("consistency ", ConsistencySpec::Mode_Name(consistency.mode()),
                       " with staleness ", staleness, ", which it has not: must be 0"));
    case ConsistencySpec::SSP:
      return absl::OkStatus();
    case ConsistencySpec::PERMIT:
      if (staleness > 0) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "consistency PERMIT with staleness 0: no step may be under way, must be 1 or more");
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown consistency ", static_cast<int>(consistency.mode())));
  }
}

void ConsistencyController::SetTrainers(uint32_t num_trainers, const ConsistencySpec& consistency) {
  trainers_.resize(num_trainers, {.clock = loaded_});
  windows_.SetTrainers(num_trainers);
  consistency_ = consistency;
}

uint64_t ConsistencyController::applied() const {
  const auto slowest =
      std::min_element(trainers_.begin(), trainers_.end(),
                       [](const Trainer& a, const Trainer& b) { return a.clock < b.clock; });
  return slowest == trainers_.end() ? loaded_ : slowest->clock;
}

absl::Status ConsistencyController::CheckTrainer(const char* what, uint32_t trainer) const {
  if (trainer < trainers_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " from trainer ", trainer, ", but this job has ", trainers_.size(), " trainers"));
}

absl::Status ConsistencyController::CheckStep(const char* what, uint32_t trainer, uint64_t step,
                                              uint64_t ahead) const {
  RETURN_IF_ERROR(CheckTrainer(what, trainer));
  if (step == 0 || step > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " for step ", step, "; steps count from 1 to 2^32 - 1"));
  }
  if (step > clock(trainer) + ahead) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " for step ", step, " from trainer ", trainer, ", but only ", clock(trainer),
        " steps are applied: wait for the commit of step ", step - ahead));
  }
  return absl::OkStatus();
}

absl::Status ConsistencyController::NoteCaller(const char* what, const Caller& caller) {
  const uint32_t known = windows_.incarnation(caller.trainer);
  if (caller.incarnation == known) return absl::OkStatus();
  if (caller.incarnation < known) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " from incarnation ", caller.incarnation, " of trainer ", caller.trainer,
                     ", which was restarted: its incarnation is ", known));
  }
  const Trainer& trainer = trainers_[caller.trainer];
  if (windows_.HasPending(caller.trainer) || trainer.asked_norm || trainer.commit.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " from incarnation ", caller.incarnation, " of trainer ", caller.trainer,
                     ", but incarnation ", known, " was in the middle of step ", trainer.clock + 1,
                     ": reload the last checkpoint"));
  }
  windows_.Restart(caller.trainer, caller.incarnation);
  return absl::OkStatus();
}

absl::StatusOr<ConsistencyController::PullVerdict> ConsistencyController::AdmitPull(
    const std::optional<Caller>& caller, uint64_t step) {
  if (caller.has_value()) RETURN_IF_ERROR(CheckTrainer("pull", caller->trainer));
  if (step > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull for step ", step, "; steps count from 1 to 2^32 - 1"));
  }
  if (const uint64_t last = OwnClock(caller) + StepsUnderWay() + 1; step > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull for step ", step, " from ",
                     caller.has_value() ? absl::StrCat("trainer ", caller->trainer) : "no trainer",
                     ", but only ", OwnClock(caller),
                     " steps are applied: a pull may be one step ahead, which is step ", last));
  }
  if (caller.has_value()) RETURN_IF_ERROR(NoteCaller("pull", *caller));
  if (step == 0) return PullVerdict::NOW;
  if (step <= OwnClock(caller)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pull for step ", step, ", but step ", OwnClock(caller), " is applied: its rows are gone"));
  }
  begun_ = true;
  return AdmitWaitingPull(caller, step) ? PullVerdict::NOW : PullVerdict::LATER;
}

bool ConsistencyController::AdmitWaitingPull(const std::optional<Caller>& caller, uint64_t step) {
  const uint64_t own = OwnClock(caller), slowest = applied();
  if (own + StepsUnderWay() < step) return false;
  if (consistency_.mode() == ConsistencySpec::SSP && slowest + consistency_.staleness() + 1 < step)
    return false;
  staleness_.Add(step - 1 > slowest ? step - 1 - slowest : 0);
  outstanding_.Add(step > own ? step - own : 0);
  return true;
}

absl::Status ConsistencyController::CheckCovered(const PushName& own,
                                                 const std::vector<PushName>& covered) const {
  const auto refuse = [&](auto... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", own.sequence, " of trainer ", own.trainer, " covers ", why...));
  };
  if (!covered.empty() && !sums_trainers()) {
    return refuse("pushes of other trainers; with consistency ",
                  ConsistencySpec::Mode_Name(consistency_.mode()),
                  ", where each trainer's are applied by its own commit, it must not");
  }
  std::vector<bool> seen(trainers_.size());
  seen[own.trainer] = true;
  for (const PushName& push : covered) {
    RETURN_IF_ERROR(CheckTrainer("covered push", push.trainer));
    if (!IsSequence(push.sequence))
      return refuse("push ", push.sequence, " of trainer ", push.trainer, kSequenceRule);
    if (seen[push.trainer])
      return refuse("trainer ", push.trainer, " twice: itself and each other trainer once at most");
    seen[push.trainer] = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardSet> ConsistencyController::FreshShards(const PushName& push, uint64_t step,
                                                            const ShardSet& shards) const {
  ASSIGN_OR_RETURN(const PushWindows::Known known,
                   windows_.Find(push.trainer, push.sequence, shards));
  const uint64_t applied = clock(push.trainer);
  if (step <= applied) {
    if (known.applied == shards) return ShardSet();
    return RefusePush(push, step, "is new, but step ", applied,
                      " is applied: its gradients would be lost");
  }
  if (known.applied.any() || (known.pending_step != 0 && known.pending_step != step)) {
    return RefusePush(
        push, step,
        "has a sequence that another step had: who counts anew must be a new incarnation");
  }
  return shards & ~known.pending;
}

absl::StatusOr<ShardSet> ConsistencyController::AdmitPush(const Caller& caller, uint64_t step,
                                                          uint64_t sequence, const ShardSet& shards,
                                                          const std::vector<PushName>& covered) {
  const PushName own{caller.trainer, caller.incarnation, sequence};
  RETURN_IF_ERROR(CheckStep("push", own.trainer, step, StepsUnderWay()));
  if (!IsSequence(sequence)) {
    return absl::InvalidArgumentError(
        absl::StrCat("push sequence ", sequence, " of trainer ", own.trainer, kSequenceRule));
  }
  RETURN_IF_ERROR(CheckCovered(own, covered));
  RETURN_IF_ERROR(NoteCaller("push", caller));
  for (const PushName& push : covered)
    RETURN_IF_ERROR(NoteCaller("covered push", {push.trainer, push.incarnation}));
  ASSIGN_OR_RETURN(const ShardSet fresh, FreshShards(own, step, shards));
  for (const PushName& push : covered) {
    ASSIGN_OR_RETURN(const ShardSet fresh_too, FreshShards(push, step, shards));
    if (fresh_too == fresh) continue;
    return RefusePush(
        own, step, "covers push ", push.sequence, " of trainer ", push.trainer,
        ", but of some virtual shards only one of the two came before: they cannot be taken apart");
  }
  if (fresh.none()) return fresh;
  // The trainers of covered pushes have done their part and may have gone on. The step still waits
  // for the sender's commit.
  const Trainer& sender = trainers_[own.trainer];
  if (step == sender.clock + 1 && (sender.asked_norm || sender.commit.has_value())) {
    return RefusePush(own, step, "comes after the trainer's ",
                      sender.commit.has_value() ? "commit" : "gradient norm");
  }
  begun_ = true;
  windows_.Add(own.trainer, step, sequence, fresh);
  for (const PushName& push : covered) windows_.Add(push.trainer, step, push.sequence, fresh);
  return fresh;
}

absl::StatusOr<ConsistencyController::RoundVerdict> ConsistencyController::AdmitNorm(
    const Caller& caller, uint64_t step) {
  const uint32_t trainer = caller.trainer;
  RETURN_IF_ERROR(CheckStep("gradient norm", trainer, step, 1));
  RETURN_IF_ERROR(NoteCaller("gradient norm", caller));
  begun_ = true;
  if (step <= clock(trainer)) return RoundVerdict::PAST;
  const bool repeated = trainers_[trainer].asked_norm;
  trainers_[trainer].asked_norm = true;
  if (!sums_trainers()) return RoundVerdict::COMPLETE;
  const bool all = std::all_of(trainers_.begin(), trainers_.end(),
                               [](const Trainer& t) { return t.asked_norm; });
  return all && !repeated ? RoundVerdict::COMPLETE : RoundVerdict::WAIT;
}

bool ConsistencyController::has_commits() const {
  return std::any_of(trainers_.begin(), trainers_.end(),
                     [](const Trainer& t) { return t.commit.has_value(); });
}

absl::StatusOr<ConsistencyController::RoundVerdict> ConsistencyController::AdmitCommit(
    const Caller& caller, const CommitArgs& args) {
  const uint32_t trainer = caller.trainer;
  RETURN_IF_ERROR(CheckStep("commit", trainer, args.step, 1));
  RETURN_IF_ERROR(NoteCaller("commit", caller));
  begun_ = true;
  if (args.step <= clock(trainer)) return RoundVerdict::PAST;
  if (!sums_trainers()) {
    Apply(trainer);
    return RoundVerdict::COMPLETE;
  }
  CommitArgs sorted = args;
  std::sort(sorted.rates.begin(), sorted.rates.end(),
            [](const TableRateValue& a, const TableRateValue& b) { return a.table < b.table; });
  for (size_t other = 0; other < trainers_.size(); ++other) {
    if (!trainers_[other].commit.has_value() || SameArgs(*trainers_[other].commit, sorted))
      continue;
    const std::string difference = absl::StrCat("commit of step ", args.step, ": trainer ", other,
                                                " says ", Describe(*trainers_[other].commit),
                                                ", trainer ", trainer, " says ", Describe(sorted));
    for (Trainer& each : trainers_) each.commit.reset();
    return absl::FailedPreconditionError(difference);
  }
  trainers_[trainer].commit = std::move(sorted);
  if (!std::all_of(trainers_.begin(), trainers_.end(),
                   [](const Trainer& t) { return t.commit.has_value(); })) {
    return RoundVerdict::WAIT;
  }
  for (uint32_t each = 0; each < num_trainers(); ++each) Apply(each);
  return RoundVerdict::COMPLETE;
}

absl::Status ConsistencyController::CheckSave(uint64_t step) const {
  for (uint32_t trainer = 0; trainer < num_trainers(); ++trainer) {
    if (clock(trainer) == step) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rows of step ", step, " cannot be saved: the last step applied",
        sums_trainers() ? "" : absl::StrCat(" of trainer ", trainer), " is ", clock(trainer)));
  }
  return absl::OkStatus();
}

absl::Status ConsistencyController::CheckLoad(uint64_t step) const {
  if (step > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("load of step ", step, "; steps count from 1 to 2^32 - 1"));
  }
  if (!begun_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rows of step ", step, " cannot be loaded: training has begun, ", applied(),
                   " steps are applied; load before any other call"));
}

absl::Status ConsistencyController::Load(uint64_t step, const std::vector<ShardWindow>& windows) {
  RETURN_IF_ERROR(windows_.Restore(windows));
  loaded_ = step;
  for (Trainer& trainer : trainers_) trainer.clock = step;
  return absl::OkStatus();
}

void ConsistencyController::Apply(uint32_t trainer) {
  Trainer& of = trainers_[trainer];
  of = {.clock = of.clock + 1};
  windows_.Fold(trainer, of.clock);
}

}  // namespace tandem::ps
