// Makes a run's evaluations when they are due, and compares each with the best so far. A resumed
// run makes the evaluation that a stop prevented. Thread rule: the step's thread. Invariant: an
// evaluation happens whole or leaves nothing behind.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/loop/replica/replica.h"
#include "trainer/loop/step_passes.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

class Evaluations {
 public:
  // REQUIRES: both arguments outlive the evaluations.
  Evaluations(Replica* replica, StepPasses* passes) : replica_(*replica), passes_(*passes) {}

  // Evaluates if due after step `step`. Returns true if the evaluation is the best so far.
  // Collective.
  absl::StatusOr<bool> EvaluateIfDue(int64_t step);
  // True if the last step's evaluation was due, but a stop came before its end.
  bool Owed() const;

 private:
  struct Results {
    tasks::Evaluation valid, test;  // `test` of the best evaluation so far only
    std::string wrong;              // names the metric that is not finite; empty if all are
  };
  // Returns Ok if all weights and optimizer slots that this replica holds are finite.
  absl::Status CheckWeights(int64_t step);
  absl::StatusOr<Results> Evaluate();
  // Takes the results into the run's state and its output. Returns true if they are the best.
  absl::StatusOr<bool> Record(int64_t step, const Results& results);

  Replica& replica_;
  StepPasses& passes_;
};

}  // namespace tandem::loop
