#include "trainer/cli/process/scheduler.h"

#include <cstdlib>
#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace tandem::cli {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  void SetUp() override { ForgetScheduler(); }
  void TearDown() override { ForgetScheduler(); }

  struct Place {
    int index;
    std::string master;
  };
  // The result for a role that has been given `index`; -1: none.
  static absl::StatusOr<Place> Asked(const std::string& role, int index = -1,
                                     const std::string& master = "m:1") {
    Place place{index, master};
    const absl::Status asked = AskScheduler(role, place.index, place.master);
    if (!asked.ok()) return asked;
    return place;
  }
  static std::string Refusal(const std::string& role, int index = -1) {
    const absl::Status status = Asked(role, index).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
};

TEST_F(SchedulerTest, TheRankIsTheFlagsOrTheJobsOrTorchruns) {
  EXPECT_EQ(Asked("trainer")->index, -1);
  EXPECT_EQ(Asked("trainer", 4)->index, 4);
  setenv("RANK", "2", 1);
  EXPECT_EQ(Asked("trainer")->index, 2);
  EXPECT_EQ(Asked("ps")->index, -1) << "torchrun starts trainers alone";
  ForgetScheduler();
  setenv("JOB_COMPLETION_INDEX", "3", 1);
  for (const char* role : {"master", "ps", "trainer", "worker"}) EXPECT_EQ(Asked(role)->index, 3);
  EXPECT_EQ(Asked("ps", 3)->index, 3) << "two that agree";
}

TEST_F(SchedulerTest, TwoSourcesThatDisagreeAreBothNamed) {
  setenv("JOB_COMPLETION_INDEX", "0", 1);
  EXPECT_TRUE(absl::StartsWith(Refusal("ps", 1), "--index 1 and JOB_COMPLETION_INDEX=0 "));
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(Refusal("trainer"),
            "RANK=3 does not exist: WORLD_SIZE=2\n"
            "JOB_COMPLETION_INDEX=0 and RANK=3 name two ranks for one process: give one of them");
}

TEST_F(SchedulerTest, WhatIsNoNumberIsRefused) {
  for (const char* text : {"-1", "one", "1.5", "99999999999"}) {
    setenv("JOB_COMPLETION_INDEX", text, 1);
    EXPECT_TRUE(absl::StrContains(Refusal("trainer"), absl::StrCat("JOB_COMPLETION_INDEX=", text)));
  }
}

TEST_F(SchedulerTest, TorchrunNamesTheMasterUnlessTheFlagDoes) {
  setenv("MASTER_ADDR", "host", 1);
  EXPECT_FALSE(Asked("trainer", 0, "").ok());
  setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(Asked("trainer", 0, "")->master, "host:29500");
  EXPECT_EQ(Asked("trainer", 0, "m:1")->master, "m:1");
  setenv("MASTER_PORT", "0", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Asked("trainer", 0, "").status()));
}

TEST_F(SchedulerTest, TheWorldIsTheTrainers) {
  EXPECT_TRUE(CheckWorldSize(4).ok());
  setenv("WORLD_SIZE", "4", 1);
  EXPECT_TRUE(CheckWorldSize(4).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckWorldSize(2)));
}

}  // namespace
}  // namespace tandem::cli
