// Which steps are followed by a record, an evaluation or a checkpoint.
#include "trainer/loop/replica/step_calendar.h"

#include <gtest/gtest.h>
#include <vector>

#include "proto/job.pb.h"

namespace tandem::loop {
namespace {

Job JobOf(int max_epochs, int max_steps) {
  Job job;
  auto* train = job.mutable_train();
  train->set_max_epochs(max_epochs);
  train->set_max_steps(max_steps);
  train->set_eval_every_epochs(1);
  train->set_log_every_steps(4);
  return job;
}

template <class Due>
std::vector<int64_t> StepsThat(const StepCalendar& calendar, Due due) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= calendar.total_steps(); ++step) {
    if ((calendar.*due)(step)) steps.push_back(step);
  }
  return steps;
}

TEST(StepCalendarTest, EpochsCountFromOneAndTheLastMayBeCutShort) {
  const Job job = JobOf(/*max_epochs=*/3, /*max_steps=*/7);
  const StepCalendar calendar(job, /*steps_per_epoch=*/3);
  EXPECT_EQ(calendar.total_steps(), 7);
  EXPECT_EQ(calendar.EpochOf(1), 1);
  EXPECT_EQ(calendar.EpochOf(3), 1);
  EXPECT_EQ(calendar.EpochOf(4), 2);
  EXPECT_EQ(calendar.EpochsUpTo(5), 1);
  EXPECT_EQ(calendar.EpochsUpTo(6), 2);
  EXPECT_EQ(StepsThat(calendar, &StepCalendar::EndsEpoch), (std::vector<int64_t>{3, 6, 7}));
}

TEST(StepCalendarTest, TheLastStepIsLoggedToo) {
  const Job job = JobOf(0, 10);
  EXPECT_EQ(StepsThat(StepCalendar(job, 3), &StepCalendar::IsLogged),
            (std::vector<int64_t>{4, 8, 10}));
}

TEST(StepCalendarTest, EvaluationsFollowEpochsOrStepsAndTheLastStep) {
  Job job = JobOf(0, 10);
  const auto due = [&] { return StepsThat(StepCalendar(job, 3), &StepCalendar::EvaluationDue); };
  EXPECT_EQ(due(), (std::vector<int64_t>{3, 6, 9, 10}));
  job.mutable_train()->set_eval_every_epochs(2);
  EXPECT_EQ(due(), (std::vector<int64_t>{6, 10}));
  job.mutable_train()->set_eval_every_steps(4);
  EXPECT_EQ(due(), (std::vector<int64_t>{4, 8, 10})) << "steps come before epochs";
}

TEST(StepCalendarTest, CheckpointsFollowStepsOnlyIfAsked) {
  Job job = JobOf(0, 10);
  EXPECT_TRUE(StepsThat(StepCalendar(job, 3), &StepCalendar::CheckpointDue).empty());
  job.mutable_checkpoint()->set_every_steps(4);
  EXPECT_EQ(StepsThat(StepCalendar(job, 3), &StepCalendar::CheckpointDue),
            (std::vector<int64_t>{4, 8}));
}

}  // namespace
}  // namespace tandem::loop
