#include "ps/step_gate.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"

namespace tandem::ps {
namespace {

// Bits, not values, so that NaN equals itself and the hash of the job cannot hide a difference.
bool SameArgs(const CommitArgs& a, const CommitArgs& b) {
  const auto same = [](float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); };
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

}  // namespace

absl::Status StepGate::CheckCaller(const char* what, uint32_t trainer, uint64_t step) const {
  if (trainer >= trainers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " from trainer ", trainer, ", but this job has ", trainers_.size(), " trainers"));
  }
  if (step == 0 || step > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " for step ", step, "; steps count from 1 to 2^32 - 1"));
  }
  if (step > applied_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat(what, " for step ", step, " from trainer ", trainer, ", but only ",
                                                   applied_, " steps are applied: wait for the commit of step ",
                                                   step - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepGate::PullVerdict> StepGate::AdmitPull(uint64_t step) {
  if (step == 0) return PullVerdict::NOW;
  if (step <= applied_) {
    return absl::FailedPreconditionError(
        absl::StrCat("pull for step ", step, ", but step ", applied_, " is applied: its rows are gone"));
  }
  begun_ = true;
  return step == applied_ + 1 ? PullVerdict::NOW : PullVerdict::LATER;
}

absl::StatusOr<StepGate::PushVerdict> StepGate::AdmitPush(uint32_t trainer, uint64_t step, uint32_t slice,
                                                          uint64_t sequence) {
  RETURN_IF_ERROR(CheckCaller("push", trainer, step));
  begun_ = true;
  if (step <= applied_) return PushVerdict::REPEATED;
  Trainer& sender = trainers_[trainer];
  if (sender.pushes.count({slice, sequence}) != 0) return PushVerdict::REPEATED;
  if (sender.asked_norm || sender.commit.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", trainer, " pushed for step ", step, " after its ",
                                                      sender.commit.has_value() ? "commit" : "gradient norm"));
  }
  sender.pushes.insert({slice, sequence});
  return PushVerdict::NEW;
}

absl::StatusOr<StepGate::RoundVerdict> StepGate::AdmitNorm(uint32_t trainer, uint64_t step) {
  RETURN_IF_ERROR(CheckCaller("gradient norm", trainer, step));
  begun_ = true;
  if (step <= applied_) return RoundVerdict::PAST;
  const bool repeated = trainers_[trainer].asked_norm;
  trainers_[trainer].asked_norm = true;
  const bool all = std::all_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.asked_norm; });
  return all && !repeated ? RoundVerdict::COMPLETE : RoundVerdict::WAIT;
}

absl::StatusOr<StepGate::RoundVerdict> StepGate::AdmitCommit(uint32_t trainer, const CommitArgs& args) {
  RETURN_IF_ERROR(CheckCaller("commit", trainer, args.step));
  begun_ = true;
  if (args.step <= applied_) return RoundVerdict::PAST;
  CommitArgs sorted = args;
  std::sort(sorted.rates.begin(), sorted.rates.end(),
            [](const TableRateValue& a, const TableRateValue& b) { return a.table < b.table; });
  for (size_t other = 0; other < trainers_.size(); ++other) {
    if (!trainers_[other].commit.has_value() || SameArgs(*trainers_[other].commit, sorted)) continue;
    const std::string difference = absl::StrCat("commit of step ", args.step, ": trainer ", other, " says ",
                                                Describe(*trainers_[other].commit), ", trainer ", trainer, " says ",
                                                Describe(sorted));
    for (Trainer& each : trainers_) each.commit.reset();
    return absl::FailedPreconditionError(difference);
  }
  trainers_[trainer].commit = std::move(sorted);
  if (!std::all_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.commit.has_value(); })) {
    return RoundVerdict::WAIT;
  }
  Apply();
  return RoundVerdict::COMPLETE;
}

absl::Status StepGate::CheckLoad(uint64_t step) const {
  if (step > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("load of step ", step, "; steps count from 1 to 2^32 - 1"));
  }
  if (!begun_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rows of step ", step, " cannot be loaded: training has begun, ", applied_,
                                                    " steps are applied; load before any other call"));
}

void StepGate::Apply() {
  ++applied_;
  for (Trainer& trainer : trainers_) trainer = Trainer();
}

}  // namespace tandem::ps
