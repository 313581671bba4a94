// Progress lines that fit a terminal, and rates that settle.
#include "trainer/report/progress.h"

#include <gtest/gtest.h>

#include "kernels/base/count_text.h"

namespace tandem::report {
namespace {

TEST(FitLineTest, TakesTheMostImportantPartsThatFit) {
  const std::vector<std::string> parts{"step 1/2", "loss 0.5000", "a part that is far too long",
                                       "ETA 0:01"};
  EXPECT_EQ(FitLine(parts, 80), "step 1/2  loss 0.5000  a part that is far too long  ETA 0:01");
  EXPECT_EQ(FitLine(parts, 40), "step 1/2  loss 0.5000  ETA 0:01");
  EXPECT_EQ(FitLine(parts, 21), "step 1/2  loss 0.5000");
  EXPECT_EQ(FitLine(parts, 20), "step 1/2  ETA 0:01");
  EXPECT_EQ(FitLine(parts, 4), "step");
}

TEST(SmoothedRateTest, IsTheMeanOfTheLastSeconds) {
  SmoothedRate rate;
  EXPECT_EQ(rate.Add(100, 0), 100);
  const double soon = rate.Add(200, 0.1);
  EXPECT_GT(soon, 100);
  EXPECT_LT(soon, 110) << "a step of a tenth of a second says little";
  for (int i = 0; i < 300; ++i) rate.Add(200, 0.1);
  EXPECT_NEAR(rate.Add(200, 0.1), 200, 1);
}

TEST(ProgressTextTest, DurationsAndCountsReadWell) {
  EXPECT_EQ(DurationText(0.2), "0:00");
  EXPECT_EQ(DurationText(75), "1:15");
  EXPECT_EQ(DurationText(3700), "1:01:40");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(12345.6), "12,346");
  EXPECT_EQ(CountText(1234567), "1,234,567");
}

}  // namespace
}  // namespace tandem::report
