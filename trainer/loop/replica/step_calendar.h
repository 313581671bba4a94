// Which steps end an epoch, and what follows a step: a record, an evaluation, a checkpoint. All
// replicas have the same calendar, so nobody needs to ask the others.
// Thread rule: a value.
#pragma once

#include <cstdint>

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::loop {

// Steps and epochs count from 1.
class StepCalendar {
 public:
  // REQUIRES: `job` is resolved and outlives the calendar.
  StepCalendar(const Job& job, int64_t steps_per_epoch);

  int64_t total_steps() const { return total_steps_; }
  int64_t EpochOf(int64_t step) const { return (step - 1) / steps_per_epoch_ + 1; }
  // Returns the number of epochs that are complete after `step`.
  int64_t EpochsUpTo(int64_t step) const { return step / steps_per_epoch_; }
  // The run's last step ends its epoch too.
  bool EndsEpoch(int64_t step) const;

  bool IsLogged(int64_t step) const;
  bool EvaluationDue(int64_t step) const;
  bool CheckpointDue(int64_t step) const;

 private:
  const Job& job_;
  const int64_t steps_per_epoch_, total_steps_;
};

}  // namespace tandem::loop
