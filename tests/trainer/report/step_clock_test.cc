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
  for (int step = 0; step < 2; ++step) {  // the second starts from nothing
    const Stopwatch watch;
    clock.Begin();
    clock.Mark(StepClock::PULL);
    absl::SleepFor(absl::Milliseconds(20));
    clock.Mark(StepClock::COMPUTE);
    absl::SleepFor(absl::Milliseconds(40));
    clock.Mark(StepClock::COLLECTIVE);
    absl::SleepFor(absl::Milliseconds(20));
    clock.Mark(StepClock::COMPUTE);
    const double whole = watch.Seconds() * 1e3;
    const auto milliseconds = clock.Milliseconds();
    EXPECT_GE(milliseconds[StepClock::COMPUTE], 40);
    EXPECT_GE(milliseconds[StepClock::COLLECTIVE], 40);
    EXPECT_EQ(milliseconds[StepClock::PUSH], 0);
    double sum = 0;
    for (const double part : milliseconds) sum += part;
    EXPECT_LE(sum, whole);
    EXPECT_GE(sum, 80);
  }
}

}  // namespace
}  // namespace tandem::report
