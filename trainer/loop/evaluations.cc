#include "trainer/loop/evaluations.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/loop/replica/divergence.h"

namespace tandem::loop {

absl::StatusOr<bool> Evaluations::EvaluateIfDue(int64_t step) {
  const StepCalendar& calendar = replica_.calendar;
  if (!calendar.EvaluationDue(step)) {
    if (calendar.EndsEpoch(step) && replica_.job.train().eval_every_steps() == 0)
      replica_.state.BeginMean();
    return false;
  }
  if (replica_.stop_vote.stopping()) return false;  // the resumed run makes the evaluation
  RETURN_IF_ERROR(replica_.AwaitWeights());
  RETURN_IF_ERROR(CheckWeights(step));
  passes_.MakeRoom();
  ASSIGN_OR_RETURN(const Results results, Evaluate());
  RETURN_IF_ERROR(replica_.stream.status());
  if (replica_.stop_vote.stopping()) return false;  // broken off; discards all results
  if (!results.wrong.empty() && replica_.divergence.stops())
    return replica_.divergence.End(step, absl::StrCat("evaluation: ", results.wrong));
  return Record(step, results);
}

bool Evaluations::Owed() const {
  return replica_.calendar.EvaluationDue(replica_.state.step()) &&
         replica_.state.has_steps_since_mean();
}

absl::Status Evaluations::CheckWeights(int64_t step) {
  const std::string mine = replica_.dense.FirstNonFinite(replica_.stream);
  RETURN_IF_ERROR(replica_.stream.status());
  ASSIGN_OR_RETURN(const std::string wrong, replica_.FoundByAny(mine));
  if (wrong.empty()) return absl::OkStatus();
  return replica_.divergence.End(step, absl::StrCat("parameter ", wrong, " is not finite"));
}

absl::StatusOr<Evaluations::Results> Evaluations::Evaluate() {
  const tasks::EvaluationArgs args{
      .stream = &replica_.stream, .timeout = replica_.Timeout(), .stop_agreed = [this] {
        return replica_.stop_vote.Agree(replica_.Deadline());
      }};
  Results results;
  ASSIGN_OR_RETURN(results.valid, replica_.task->Evaluate(tasks::EvaluationSplit::VALID, args));
  results.wrong = FirstNonFinite("valid/", results.valid);
  if (replica_.stop_vote.stopping() || !results.wrong.empty() ||
      !replica_.state.IsBest(results.valid.selection))
    return results;
  // Tests now, so that the test metrics belong to the best evaluation's weights without a copy of
  // the weights.
  ASSIGN_OR_RETURN(results.test, replica_.task->Evaluate(tasks::EvaluationSplit::TEST, args));
  results.wrong = FirstNonFinite("test/", results.test);
  return results;
}

absl::StatusOr<bool> Evaluations::Record(int64_t step, const Results& results) {
  RunState& state = replica_.state;
  report::EvaluationRecord record{.step = step,
                                  .epoch = replica_.calendar.EpochOf(step),
                                  .train_loss = state.MeanLoss(),
                                  .best = false,
                                  .decides = "valid/" + results.valid.decides,
                                  .metrics = {}};
  state.BeginMean();
  for (const auto& [name, value] : results.valid.metrics) record.metrics["valid/" + name] = value;
  const double selection = results.wrong.empty() ? results.valid.selection : std::nan("");
  record.best = state.Evaluated(record.epoch, selection, record.metrics);
  if (record.best) {
    std::map<std::string, double> metrics;
    for (const auto& [name, value] : results.test.metrics) metrics["test/" + name] = value;
    state.AddBestMetrics(metrics);
  }
  if (replica_.output != nullptr) RETURN_IF_ERROR(replica_.output->Evaluated(record));
  return record.best;
}

}  // namespace tandem::loop
