// `tandem schedule` and `tandem bench schedule`.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

TEST(ScheduleTest, AScheduleIsDrawnWithItsFigures) {
  SmallJob job;
  const support::Ended ended =
      job.Run({"schedule", "--pp", "2", "--microbatches", "2", "--schedule", "ZB_H1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* line :
       {"rank 0 F0 F1 .  B0 W0 B1 W1", "rank 1 .  F0 B0 F1 B1 W0 W1",
        "7 slots, 6 of them work: bubble 14.3 %", "Live microbatches by rank: 2 2"})
    EXPECT_TRUE(absl::StrContains(ended.out, line)) << line << "\n" << ended.out;
}

TEST(ScheduleTest, ChunksOfAnotherScheduleAreRefused) {
  SmallJob job;
  const support::Ended ended = job.Run({"schedule", "--virtual-stages", "2"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_TRUE(absl::StrContains(ended.err, "--virtual-stages is 2; allowed: 1")) << ended.err;
}

TEST(BenchScheduleTest, MeasuredTimesAreThoseOfTheVerifier) {
  SmallJob job;
  const support::Ended ended = job.Run({"bench", "schedule", "--stages", "3", "--microbatches", "4",
                                        "--repetitions", "2", "--json", job.Path("figures.json")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto figures = nlohmann::json::parse(job.Read("figures.json"));
  ASSERT_EQ(figures.size(), 4u);
  const double simulated[] = {360, 360, 300, 280};  // units of 20 ms
  for (size_t i = 0; i < figures.size(); ++i) {
    const double measured = figures[i]["measured_ms"];
    EXPECT_DOUBLE_EQ(figures[i]["simulated_ms"], simulated[i]) << figures[i];
    EXPECT_GE(measured, simulated[i]) << figures[i];
    EXPECT_LT(measured, 1.5 * simulated[i]) << figures[i];  // of a busy machine
  }
}

}  // namespace
}  // namespace tandem::cluster
