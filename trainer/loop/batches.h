// The next steps' batches. A batch's rows are pulled before its step begins, which hides the pull.
// Thread rule: the step's thread.
// Invariant: pulls leave in the order of their steps.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/loop/step_loader.h"
#include "trainer/sparse/remote_embedding.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

struct Batch {
  std::unique_ptr<tasks::StepInput> input;
  std::unique_ptr<sparse::PulledRows> rows;  // null without tables

  // Returns the divisor of the summed loss. At least 1: a batch without targets has a loss of 0.
  double num_targets() const;
};

// The destructor waits for the pulls in flight. Abort the client first if the run has failed.
class Batches {
 public:
  // Gives the batches of steps first_step .. last_step. `tables` is null if the task has none.
  // REQUIRES: task and tables outlive the batches.
  Batches(const tasks::Task* task, sparse::RemoteEmbedding* tables, int64_t first_step,
          int64_t last_step);

  // Starts the pull of the next batch not yet pulled. Does nothing after the last batch.
  void PullNext();
  // The batch of the step in progress. Its rows are here or on their way.
  // REQUIRES: PullNext was called for it.
  Batch& front() { return pulled_.front(); }
  // Ends the batch of the step in progress.
  void PopFront() { pulled_.pop_front(); }
  // Waits for the rows of all pulled batches.
  absl::Status AwaitRows(absl::Time deadline);

 private:
  sparse::RemoteEmbedding* const tables_;
  StepLoader loader_;
  std::deque<Batch> pulled_;
  int64_t last_pulled_;  // step of the last batch in pulled_
};

}  // namespace tandem::loop
