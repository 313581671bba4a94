// Workers as processes: `tandem worker` in a job, and the hybrid example.
// The example's worker hosts the embedding bag of two trainers.
#include <csignal>
#include <gtest/gtest.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

TEST(WorkerRoleTest, JoinsTheJobAndEndsWithIt) {
  SmallJob job;
  const support::Ended ended = job.Launch("run", {"--workers", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  job.ExpectNothingLeft();
}

TEST(WorkerRoleTest, AKilledWorkerFailsTheJobByName) {
  SmallJob job;
  const auto launch = job.Start(
      "launch", "run",
      {"--workers", "1", "--set", "train.max_steps=0", "--set", "train.max_epochs=10000000"});
  ASSERT_TRUE(
      support::Eventually(support::kPatienceSeconds, [&] { return job.HasLoggedAStep("run"); }));
  kill(job.Role("worker-0").pid, SIGKILL);
  const support::Ended ended = launch->WaitWhileItWorks();
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_NE(ended.err.find("worker-0"), std::string::npos) << ended.err;
  job.ExpectNothingLeft();
}

// pytorch/pytorch#60440: DDP with a remote embedding and Adagrad fails.
// pytorch/examples#780: the example hangs above one trainer.
TEST(HybridRpcTest, TwoTrainersUnderDdpTrainARemoteEmbeddingBagWithAdagrad) {
  const support::TempFolder folder;
  support::Process example(folder.path(), {TANDEM_HYBRID_RPC});
  const support::Ended ended = example.WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("step 300  loss "), std::string::npos) << ended.out;
  EXPECT_TRUE(support::ProcessesMentioning("hybrid_rpc").empty());
}

}  // namespace
}  // namespace tandem::cluster
