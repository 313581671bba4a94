// Trainers that cut a model among them, as processes.
#include <cmath>
#include <csignal>
#include <gtest/gtest.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

const Arguments kLayout{"--dp", "2", "--tp", "2", "--zero", "1"};
const Arguments kTwoLayers{"--set", "model.layers=2"};

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(LayoutTest, ProcessesThatCutAModelEqualThreadsAndAgreeWithOneProcess) {
  SmallJob job(SmallJobKind::CUT);
  const std::string processes = job.HashOf("run", kLayout);
  EXPECT_EQ(job.HashOf("local", With(kLayout, {"--local"})), processes);
  job.HashOf("one", {"--local"});
  const std::vector<double> cut = job.Losses("run"), one = job.Losses("one");
  ASSERT_EQ(cut.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(cut[i] / one[i], 1, 1e-5) << "step " << i;
  EXPECT_EQ(job.Summary("run", "tp"), "2");
  EXPECT_EQ(job.Summary("run", "zero"), "1");
  const support::Ended inspected = job.Run({"inspect", job.Path("run/checkpoints")});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("params_hash "), std::string::npos) << inspected.out;
}

// Stages as processes, in every schedule's own way to use the edges.
TEST(LayoutTest, StagesAsProcessesEqualThreadsAndAgreeWithOneProcess) {
  SmallJob job(SmallJobKind::CUT);
  job.HashOf("one", With(kTwoLayers, {"--local"}));
  const std::vector<double> one = job.Losses("one");
  for (const Arguments& more :
       {Arguments{"--pp", "2", "--set", "parallel.schedule=ZB_H1"},
        Arguments{"--pp", "2", "--tp", "2", "--set", "parallel.recompute=FULL"}}) {
    const Arguments layout = With(With(kTwoLayers, more), {"--overwrite"});
    const std::string processes = job.HashOf("run", layout);
    EXPECT_EQ(job.HashOf("local", With(layout, {"--local"})), processes);
    const std::vector<double> run = job.Losses("run");
    ASSERT_EQ(run.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(run[i] / one[i], 1, 1e-5) << "step " << i;
    EXPECT_EQ(job.Summary("run", "pp"), "2");
  }
}

// Ranks that cut a recommender need the same rows: one of them pulls and pushes.
TEST(LayoutTest, CutRanksPullAndPushTheirRowsOnce) {
  SmallJob job;
  const Arguments layout{"--dp", "2", "--tp", "2", "--ps", "2"};
  const std::string processes = job.HashOf("run", layout);
  EXPECT_EQ(job.HashOf("local", {"--dp", "2", "--tp", "2", "--local"}), processes);
  EXPECT_EQ(job.HashOf("merged", With(layout, {"--set", "ps.merge_pushes=true"})), processes);
  job.HashOf("whole", {"--dp", "2", "--ps", "2"});
  EXPECT_EQ(job.Summary("run", "pulled_rows"), job.Summary("whole", "pulled_rows"));
  EXPECT_EQ(job.Summary("run", "served_rows"), job.Summary("run", "pulled_rows"));
  const std::vector<double> run = job.Losses("run"), whole = job.Losses("whole");
  ASSERT_EQ(run.size(), whole.size());
  for (size_t i = 0; i < run.size(); ++i) EXPECT_NEAR(run[i] / whole[i], 1, 1e-5) << "step " << i;
}

TEST(LayoutTest, ALayoutThatNeedsTooMuchMemoryIsRefusedWithWhatItNeeds) {
  SmallJob job(SmallJobKind::CUT);
  job.HashOf("whole", {"--local", "--dp", "2"});
  const double bytes = std::stod(job.Summary("whole", "model_state_bytes")),
               numbers = std::stod(job.Summary("whole", "dense_parameters"));
  EXPECT_NEAR(bytes / numbers, 16, 0.5);  // weight, gradient and two moments
  const std::string limit = "parallel.memory_bytes=" + std::to_string(int64_t(13 * numbers));
  const auto refused = job.Start("launch", "refused", {"--dp", "2", "--set", limit})->Wait();
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_NE(refused.err.find("but a rank of this layout needs "), std::string::npos) << refused.err;
  job.HashOf("cut", {"--dp", "2", "--zero", "1", "--set", limit});
  EXPECT_NEAR(std::stod(job.Summary("cut", "model_state_bytes")) / numbers, 12, 0.5);
}

TEST(LayoutTest, AStoppedRunGoesOnUnderAnotherLayout) {
  SmallJob job(SmallJobKind::CUT);
  job.HashOf("whole", {"--local"});
  job.HashOf("run", With(kLayout, {"--set", "train.max_steps=10"}));
  job.HashOf("run", {"--tp", "2", "--resume"});
  const std::vector<double> whole = job.Losses("whole"), run = job.Losses("run");
  ASSERT_EQ(run.size(), whole.size());
  for (size_t i = 0; i < run.size(); ++i) EXPECT_NEAR(run[i] / whole[i], 1, 1e-5) << "step " << i;
}

TEST(LayoutTest, AKilledRankOfACutModelEndsTheJobWithItsName) {
  if (!support::HasProc()) GTEST_SKIP() << "without /proc a role's process cannot be found";
  struct Killed {
    Arguments layout;
    int rank;
  };
  const Arguments stages = With(kTwoLayers, {"--pp", "2", "--dp", "2"});
  // A neighbour on the axis tp, one on the axis dp, and the last stage.
  for (const auto& [layout, rank] : {Killed{kLayout, 1}, Killed{kLayout, 2}, Killed{stages, 2}}) {
    SmallJob job(SmallJobKind::CUT);
    const auto launch =
        job.Start("launch", "run", With(layout, {"--set", "train.max_steps=1000000"}));
    ASSERT_TRUE(
        support::Eventually(support::kPatienceSeconds, [&] { return job.HasLoggedAStep("run"); }));
    const std::string role = "trainer-" + std::to_string(rank);
    const support::RunningProcess process = job.Role(role);
    kill(process.pid, SIGKILL);
    const support::Ended ended = launch->Wait();
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
    EXPECT_EQ(ended.err, "error: " + role + " (pid " + std::to_string(process.pid) +
                             ") was killed by SIGKILL\n");
    job.ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace tandem::cluster
