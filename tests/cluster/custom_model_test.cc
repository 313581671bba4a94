// examples/custom_model: a program with a model of its own. Its launch starts the very program for
// every role.
#include <csignal>
#include <gtest/gtest.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

Arguments TwoByTwo(const Arguments& more = {}) {
  Arguments all{"--ps", "2", "--trainers", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(CustomModelTest, StoppedAndResumedEndsWithTheBitsOfTheUnbrokenRunAndIsEvaluated) {
  SmallJob job(SmallJobKind::CUSTOM, TANDEM_CUSTOM_MODEL);
  const Arguments steps{"--set", "train.max_steps=300"};
  const std::string unbroken = job.HashOf("unbroken", TwoByTwo(steps));
  {
    const auto launch = job.Start("launch", "run", TwoByTwo(steps));
    const auto settled = [&] { return job.HasLoggedAStep("run") || launch->HasEnded(); };
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds, settled));
    kill(launch->pid(), SIGTERM);
    EXPECT_EQ(launch->WaitWhileItWorks().exit_code, 128 + SIGTERM);
  }
  Arguments resume = TwoByTwo(steps);
  resume.push_back("--resume");
  EXPECT_EQ(job.HashOf("run", resume), unbroken);
  EXPECT_EQ(job.Losses("run"), job.Losses("unbroken"));

  const support::Ended eval =
      job.Run({"eval", job.job_path(), "--set", "data.path=" + job.log_path(), "--checkpoint",
               job.Path("run/checkpoints")});
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_NE(eval.out.find("hr@10"), std::string::npos) << eval.out;
}

TEST(CustomModelTest, TheExamplesJobRanksBetterThanPopularity) {
  SmallJob job(SmallJobKind::CUSTOM, TANDEM_CUSTOM_MODEL);
  const std::string log = job.Path("synthetic.txt");
  ASSERT_EQ(job.Run({"synthesize", "--out", log, "--users", "1000", "--items", "200"}).exit_code,
            0);
  const support::Ended ended = job.Run({"launch", TANDEM_CUSTOM_MODEL_JOB, "--local", "--set",
                                        "data.path=" + log, "--out", job.Path("run")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const size_t line = ended.out.find("  hr@10");
  ASSERT_NE(line, std::string::npos) << ended.out;
  double run = 0, popularity = 0;
  ASSERT_EQ(std::sscanf(ended.out.c_str() + line, " hr@10 %lf %lf", &run, &popularity), 2);
  EXPECT_GT(run, 2 * popularity) << ended.out;
}

}  // namespace
}  // namespace tandem::cluster
