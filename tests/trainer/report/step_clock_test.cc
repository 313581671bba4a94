// The parts into which a step's time is split.
#include "trainer/report/step_clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace tandem::report {
namespace {

TEST(StepClockTest, OfACpuTimeBelongsToThePartThatEndsIt) {
  ThreadPool pool(1);
  Stream stream(&pool);
  StepClock clock(&stream);
  for (int64_t step = 1; step <= 2; ++step) {  // the second starts from nothing
    const Stopwatch watch;
    StepRecord record{.step = step, .logged = true};
    ASSERT_TRUE(clock.BeforeStep(record, absl::InfiniteFuture()).ok());
    clock.AfterPart(StepPart::PULL);
    absl::SleepFor(absl::Milliseconds(20));
    clock.AfterPart(StepPart::COMPUTE);
    absl::SleepFor(absl::Milliseconds(40));
    clock.AfterPart(StepPart::COLLECTIVE);
    absl::SleepFor(absl::Milliseconds(20));
    clock.AfterPart(StepPart::COMPUTE);
    const double whole = watch.Seconds() * 1e3;
    ASSERT_TRUE(clock.AfterStep(record, absl::InfiniteFuture()).ok());
    EXPECT_GE(record.compute_ms, 40);
    EXPECT_GE(record.collective_ms, 40);
    EXPECT_EQ(record.push_ms, 0);
    const double sum = record.compute_ms + record.collective_ms + record.pull_ms + record.push_ms;
    EXPECT_LE(sum, whole);
    EXPECT_GE(sum, 80);
  }
}

TEST(StepClockTest, AStepThatIsNotLoggedGetsNoTimes) {
  ThreadPool pool(1);
  Stream stream(&pool);
  StepClock clock(&stream);
  StepRecord record{.step = 1};
  ASSERT_TRUE(clock.BeforeStep(record, absl::InfiniteFuture()).ok());
  absl::SleepFor(absl::Milliseconds(1));
  clock.AfterPart(StepPart::COMPUTE);
  ASSERT_TRUE(clock.AfterStep(record, absl::InfiniteFuture()).ok());
  EXPECT_EQ(record.compute_ms, 0);
}

}  // namespace
}  // namespace tandem::report
