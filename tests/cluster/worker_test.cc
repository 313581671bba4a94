// Workers as processes: `tandem worker` in a job, and the hybrid example.
// The example's worker hosts the embedding bag of two trainers.
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
