// One training step of a replica. Every other part of the trainer serves step.cc: read it first.
// Thread rule: the step's thread.
// Invariant: weights change in Commit alone, dense parameters and rows together.
#pragma once

#include "absl/status/statusor.h"
#include "trainer/autograd/context.h"
#include "trainer/loop/batches.h"
#include "trainer/loop/replica/replica.h"
#include "trainer/loop/step_passes.h"
#include "trainer/report/step_observer.h"

namespace tandem::loop {

class Step {
 public:
  // REQUIRES: all arguments outlive the step.
  Step(Replica* replica, Batches* batches, StepPasses* passes, report::StepObserver* observer)
      : replica_(*replica), batches_(*batches), passes_(*passes), observer_(*observer) {}

  // Runs step `record.step` and records what it did. Tells the observer of its parts only.
  absl::Status Run(report::StepRecord& record);

 private:
  // Returns the summed loss of this replica's share of the batch. Its gradients are summed over
  // replicas, or on their way to their owners.
  absl::StatusOr<double> ForwardBackward(Context& context, Batch& batch,
                                         report::StepRecord& record);
  // Sums the loss over replicas. Learns whether a replica is to stop or kept gradients back. A step
  // that is not finite ends the run or is marked as skipped, by all replicas alike.
  absl::Status ShareLoss(const Context& context, double loss_sum, report::StepRecord& record);
  // Updates dense parameters here and rows on their servers, with one scale.
  absl::Status Commit(Context& context, report::StepRecord& record);
  // Returns the sum of the ranks' numbers. Collective.
  absl::StatusOr<double> SumOver(comm::ProcessGroup& ranks, const Context& context, double own);
  // Drops this step's batch. Asks for the next step's weights and the next batch's rows.
  void MoveOn(int64_t step);
  // True if an evaluation or a checkpoint follows.
  bool TablesAreReadAfter(int64_t step) const;

  Replica& replica_;
  Batches& batches_;
  StepPasses& passes_;
  report::StepObserver& observer_;
};

}  // namespace tandem::loop
