// A model that diverges: the job ends with exit code 70 however it was started. The job reports the
// cause once and leaves no broken checkpoint.
#include <gtest/gtest.h>

#include "rpc/listen.h"
#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr int kDiverged = 70;
constexpr double kDeadlineSeconds = 60;
// The first step throws the weights so far that the second step's loss is NaN or infinite.
const Arguments kDiverges{"--set", "optimizer.learning_rate=1e37"};
constexpr char kCause[] = "step 2: loss is ";

class DivergenceTest : public testing::Test {
 protected:
  SmallJob job_{SmallJobKind::LANGUAGE};
};

TEST_F(DivergenceTest, LaunchEndsWithSeventyAndNamesTheStepOnce) {
  for (const Arguments& layout : {Arguments{"--local"}, Arguments{"--local", "--trainers", "2"},
                                  Arguments{"--ps", "2", "--trainers", "2"}}) {
    Arguments arguments = kDiverges;
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    const std::string out = "run" + std::to_string(layout.size());
    const support::Ended ended = job_.Launch(out, arguments);
    EXPECT_EQ(ended.exit_code, kDiverged) << ended.err;
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    EXPECT_NE(ended.err.find(kCause), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("learning rate 1e+37"), std::string::npos) << ended.err;
    EXPECT_EQ(job_.Summary(out, "status"), "failed");
    EXPECT_FALSE(job_.HasCheckpoint(out));
    job_.ExpectNothingLeft();
  }
}

TEST_F(DivergenceTest, EveryRoleEndsWithSeventyAndOnlyTrainersCallItTheirError) {
  const auto held = rpc::HeldAddress::Hold("127.0.0.1:0").value();
  Arguments arguments{"--ps", "2", "--trainers", "2", "--master", held->text()};
  arguments.insert(arguments.end(), kDiverges.begin(), kDiverges.end());
  std::vector<std::pair<std::string, std::unique_ptr<support::Process>>> roles;
  for (const char* role : {"master", "ps", "ps", "trainer", "trainer"})
    roles.emplace_back(role, job_.Start(role, "run", arguments));
  for (auto& [role, process] : roles) {
    const support::Ended ended = process->Wait(kDeadlineSeconds);
    EXPECT_EQ(ended.exit_code, kDiverged) << role << ": " << ended.err;
    EXPECT_NE(ended.err.find(kCause), std::string::npos) << role << ": " << ended.err;
    if (role != "trainer") {
      EXPECT_NE(ended.err.find("] ended: "), std::string::npos) << role << ": " << ended.err;
    }
  }
  job_.ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::cluster
