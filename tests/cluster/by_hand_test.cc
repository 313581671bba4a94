// Roles started one by one, as on a cluster: they find one another through the master alone.
#include <csignal>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "rpc/listen.h"
#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

class ByHandTest : public testing::Test {
 protected:
  std::unique_ptr<support::Process> StartRole(const std::string& role, Arguments more = {}) {
    more.insert(more.end(), {"--ps", "2", "--trainers", "2", "--master", master_, "--secret-file",
                             secret_file_});
    return job_.Start(role, "run", more);
  }

  std::string WriteSecret() {
    const std::string path = job_.Write("secret", "what roles by hand have in common\n");
    chmod(path.c_str(), 0600);
    return path;
  }

  SmallJob job_;
  const std::string secret_file_ = WriteSecret();
  const std::unique_ptr<rpc::HeldAddress> held_ = rpc::HeldAddress::Hold("127.0.0.1:0").value();
  const std::string master_ = held_->text();
};

TEST_F(ByHandTest, RolesInAnyOrderTrainAsUnderLaunch) {
  std::vector<std::unique_ptr<support::Process>> roles;
  for (const char* role : {"trainer", "ps", "master", "trainer", "ps"})
    roles.push_back(StartRole(role));
  for (auto& role : roles) {
    const support::Ended ended = role->WaitWhileItWorks();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
  }
  job_.ExpectNothingLeft();
  EXPECT_FALSE(support::SomebodyListens(master_));
  EXPECT_EQ(job_.Summary("run", "params_hash"),
            job_.HashOf("launched", {"--local", "--trainers", "2"}));
}

TEST_F(ByHandTest, ARoleOfAnotherJobOrWithoutAPlaceIsRefused) {
  const auto master = StartRole("master");
  ASSERT_TRUE(support::Eventually(support::kPatienceSeconds,
                                  [this] { return support::SomebodyListens(master_); }));
  const support::Ended other = StartRole("trainer", {"--set", "seed=77"})->WaitWhileItWorks();
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("has resolved another job"), std::string::npos) << other.err;
  const support::Ended layout = job_.Start("ps", "run",
                                           {"--ps", "3", "--trainers", "2", "--master", master_,
                                            "--secret-file", secret_file_})
                                    ->WaitWhileItWorks();
  EXPECT_EQ(layout.exit_code, 2);
  EXPECT_NE(layout.err.find("--ps and --trainers"), std::string::npos) << layout.err;
  const support::Ended outside = StartRole("ps", {"--index", "2"})->WaitWhileItWorks();
  EXPECT_EQ(outside.exit_code, 2);
  EXPECT_EQ(outside.err.rfind("[ps-2 ", 0), 0u) << outside.err;
  EXPECT_NE(outside.err.find("] error: ps index 2 does not exist: this job has 2 PS"),
            std::string::npos)
      << outside.err;

  kill(master->pid(), SIGTERM);
  const support::Ended stopped = master->WaitWhileItWorks();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  EXPECT_EQ(stopped.err.size(),
            std::string("[master-0 14:05:09] ended: stopped by SIGTERM\n").size())
      << stopped.err;
  EXPECT_TRUE(stopped.err.ends_with("] ended: stopped by SIGTERM\n")) << stopped.err;
  job_.ExpectNothingLeft();
}

TEST_F(ByHandTest, AnOutFolderThatAServerDoesNotShareIsRefusedBeforeTheFirstStep) {
  const auto start = [this](const std::string& role, const std::string& out) {
    return job_.Start(role, out, {"--master", master_, "--secret-file", secret_file_});
  };
  const auto master = start("master", "run"), server = start("ps", "elsewhere"),
             trainer = start("trainer", "run");
  const support::Ended ended = trainer->Wait(support::kPatienceSeconds);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("ps-0 does not see " + job_.Path("elsewhere") + "/.shared-"),
            std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find(" that trainer-0 wrote: --out must be one folder"), std::string::npos);
  EXPECT_EQ(master->Wait(support::kPatienceSeconds).exit_code, 2);
  EXPECT_EQ(server->Wait(support::kPatienceSeconds).exit_code, 2);
  EXPECT_FALSE(job_.HasLoggedAStep("run"));
  job_.ExpectNothingLeft();
}

TEST_F(ByHandTest, ARunThatHasCompletedPrintsItsFiguresAndTrainsNothing) {
  const auto run = [this] {
    std::vector<std::unique_ptr<support::Process>> roles;
    for (const char* role : {"master", "ps", "ps", "trainer", "trainer"})
      roles.push_back(StartRole(role, {"--resume=auto"}));
    std::string printed;
    for (auto& role : roles) {
      const support::Ended ended = role->WaitWhileItWorks();
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      printed += ended.out;
    }
    return printed;
  };
  run();
  const std::string hash = job_.Summary("run", "params_hash"), again = run();
  EXPECT_NE(again.find("run is already complete: "), std::string::npos) << again;
  EXPECT_NE(again.find("test/hr@10"), std::string::npos) << again;
  EXPECT_EQ(job_.Summary("run", "params_hash"), hash);
  job_.ExpectNothingLeft();
}

TEST_F(ByHandTest, AMasterWithoutAnAddressSaysSo) {
  const support::Ended ended = job_.Start("master", "run", {})->WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--listen HOST:PORT"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tandem::cluster
