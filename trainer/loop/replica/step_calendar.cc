#include "trainer/loop/replica/step_calendar.h"

#include "proto/job.pb.h"
#include "trainer/job/job_options.h"

namespace tandem::loop {

StepCalendar::StepCalendar(const Job& job, int64_t steps_per_epoch)
    : job_(job),
      steps_per_epoch_(steps_per_epoch),
      total_steps_(job::TotalSteps(job, steps_per_epoch)) {}

bool StepCalendar::EndsEpoch(int64_t step) const {
  return step % steps_per_epoch_ == 0 || step == total_steps_;
}

bool StepCalendar::IsLogged(int64_t step) const {
  return step % job_.train().log_every_steps() == 0 || step == total_steps_;
}

bool StepCalendar::EvaluationDue(int64_t step) const {
  const Train& train = job_.train();
  if (step == total_steps_) return true;
  if (train.eval_every_steps() > 0) return step % train.eval_every_steps() == 0;
  return EndsEpoch(step) && EpochOf(step) % train.eval_every_epochs() == 0;
}

bool StepCalendar::CheckpointDue(int64_t step) const {
  const int64_t every = job_.checkpoint().every_steps();
  return every > 0 && step % every == 0;
}

}  // namespace tandem::loop
