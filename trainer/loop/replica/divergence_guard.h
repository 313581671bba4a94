// Applies train.non_finite: whether numbers that are not finite end the run or only their step. All
// replicas see the same numbers, so they decide alike.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "trainer/report/run_output.h"
#include "trainer/sparse/step_optimizer.h"

namespace tandem::loop {

class DivergenceGuard {
 public:
  // `output` gets a note of the first skipped step; null: nobody is told.
  DivergenceGuard(const Train& train, const sparse::StepOptimizer* optimizer,
                  report::RunOutput* output)
      : stops_(train.non_finite() == Train::STOP), optimizer_(*optimizer), output_(output) {}

  // `what` is not finite in a step ("loss is NaN"). Returns the error that ends the run, or Ok if
  // the step is to be skipped. Counts the skipped step.
  absl::Status Decide(int64_t step, const std::string& what);
  // Returns the error that ends the run after step `step`, whatever train.non_finite says.
  absl::Status End(int64_t step, const std::string& what) const;

  bool stops() const { return stops_; }  // train.non_finite is STOP
  int64_t num_skipped() const { return num_skipped_; }
  // An error names the step of the last checkpoint.
  void set_saved_step(int64_t step) { saved_step_ = step; }

 private:
  const bool stops_;
  const sparse::StepOptimizer& optimizer_;  // tells the learning rate
  report::RunOutput* const output_;
  int64_t num_skipped_ = 0;  // by this process
  int64_t saved_step_ = 0;   // 0: none
};

}  // namespace tandem::loop
