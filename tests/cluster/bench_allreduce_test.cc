// `tandem bench allreduce` tells what it has measured, and that the sums are right.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

TEST(BenchAllReduceTest, SumsAreRightAndTheFiguresAreWritten) {
  SmallJob job;
  const std::string path = job.Path("figures.json");
  const support::Ended ended =
      job.Run({"bench", "allreduce", "--ranks", "3", "--backend", "shm", "--backend", "tcp",
               "--bytes", "4096", "--bytes", "1048576", "--repetitions", "1", "--json", path});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto figures = nlohmann::json::parse(job.Read("figures.json"));
  ASSERT_EQ(figures.size(), 4u);
  for (const auto& figure : figures) {
    EXPECT_EQ(figure["ranks"], 3);
    EXPECT_EQ(figure["correct"], true);
    EXPECT_GT(figure["microseconds"], 0);
    EXPECT_GT(figure["busbw_gb_s"], figure["algbw_gb_s"]);
  }
  EXPECT_EQ(figures[0]["backend"], "shm");
  EXPECT_EQ(figures[1]["backend"], "tcp");
}

}  // namespace
}  // namespace tandem::cluster
