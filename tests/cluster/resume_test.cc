// Runs that are stopped, killed or refused, and go on: they end as the unbroken run does, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

namespace fs = std::filesystem;

constexpr double kDeadlineSeconds = 120;
const Arguments kTwoByTwo{"--ps", "2", "--trainers", "2"};

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

struct Case {
  std::string name;
  SmallJobKind kind;
  Arguments layout;
};

class ResumeTest : public testing::TestWithParam<Case> {
 protected:
  // Starts a run, sends the signal when it has got so far, and returns its exit code.
  template <class Reached>
  int BreakOff(const std::string& out, const Arguments& arguments, int signal, const Reached& reached) {
    const auto launch = job_.Start("launch", out, arguments);
    EXPECT_TRUE(support::Eventually(kDeadlineSeconds, reached));
    kill(launch->pid(), signal);
    return launch->Wait(kDeadlineSeconds).exit_code;
  }

  SmallJob job_{GetParam().kind};
  const Arguments run_ = With(GetParam().layout, {"--set", "train.max_steps=600", "--set", "train.eval_every_steps=100"});
};

TEST_P(ResumeTest, StoppedAndResumedEndsWithTheBitsOfTheUnbrokenRun) {
  const std::string unbroken = job_.HashOf("unbroken", run_);
  ASSERT_EQ(BreakOff("run", run_, SIGTERM, [this] { return job_.HasLoggedAStep("run"); }), 128 + SIGTERM);
  EXPECT_EQ(job_.Summary("run", "status"), "stopped");
  EXPECT_EQ(job_.HashOf("run", With(run_, {"--resume"})), unbroken);
  EXPECT_EQ(job_.Losses("run"), job_.Losses("unbroken")) << "metrics.jsonl goes on where it ended";
}

TEST_P(ResumeTest, KilledWhileItWritesCheckpointsGoesOnFromAWholeOne) {
  const Arguments run = With(run_, {"--set", "checkpoint.every_steps=1"});
  const std::string unbroken = job_.HashOf("unbroken", run_);
  ASSERT_EQ(BreakOff("run", run, SIGKILL, [this] { return job_.HasCheckpoint("run"); }), 128 + SIGKILL);
  job_.ExpectNothingLeft(/*moment_seconds=*/5);
  EXPECT_EQ(job_.HashOf("run", With(run_, {"--resume"})), unbroken);
}

// With an evaluation due after every step, a stop comes before one or in the middle of it; after every seventh, mostly between.
TEST_P(ResumeTest, StoppedAmidItsEvaluationsAndResumedHasTheFiguresOfTheUnbrokenRun) {
  const auto metrics = [this](const std::string& out) {
    const std::string summary = job_.Read(out + "/summary.json");
    const size_t begin = summary.find("\"metrics\"");
    return summary.substr(begin, summary.find('}', begin) - begin);
  };
  const std::map<std::string, std::string> patience_of_interval{{"1", "200"}, {"7", "30"}};
  for (const auto& [interval, patience] : patience_of_interval) {
    SCOPED_TRACE("every " + interval);
    const Arguments run = With(GetParam().layout, {"--set", "train.max_steps=600", "--set", "train.eval_every_steps=" + interval,
                                                   "--set", "train.patience=" + patience});
    const std::string unbroken = "unbroken" + interval, broken = "run" + interval, file = "/evaluations.jsonl";
    const std::string hash = job_.HashOf(unbroken, run);
    for (const int evaluations : {3, 12}) {
      const auto reached = [&] {
        const std::string lines = job_.Read(broken + file);
        return std::count(lines.begin(), lines.end(), '\n') >= evaluations;
      };
      const Arguments go_on = evaluations == 3 ? run : With(run, {"--resume"});
      ASSERT_EQ(BreakOff(broken, go_on, SIGTERM, reached), 128 + SIGTERM);
    }
    EXPECT_EQ(job_.HashOf(broken, With(run, {"--resume"})), hash);
    for (const char* field : {"steps", "best_step", "best_epoch"}) {
      EXPECT_EQ(job_.Summary(broken, field), job_.Summary(unbroken, field)) << field;
    }
    EXPECT_EQ(metrics(broken), metrics(unbroken));
    EXPECT_EQ(job_.Read(broken + file), job_.Read(unbroken + file));
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, ResumeTest,
                         testing::Values(Case{"RecommendationLocal", SmallJobKind::RECOMMENDATION, {"--local"}},
                                         Case{"RecommendationTwoByTwo", SmallJobKind::RECOMMENDATION, kTwoByTwo},
                                         Case{"LanguageLocalReplicas", SmallJobKind::LANGUAGE, {"--local", "--trainers", "2"}},
                                         Case{"LanguageTwoByTwo", SmallJobKind::LANGUAGE, kTwoByTwo}),
                         [](const auto& info) { return info.param.name; });

class ResumeElsewhereTest : public testing::Test {
 protected:
  SmallJob job_;
};

TEST_F(ResumeElsewhereTest, AnotherNumberOfServersAndTrainersTrainsOnWithTheSameLoss) {
  job_.HashOf("unbroken", With(kTwoByTwo, {"--set", "train.max_steps=80"}));
  job_.HashOf("run", With(kTwoByTwo, {"--set", "train.max_steps=30", "--set", "checkpoint.every_steps=30"}));
  job_.HashOf("run", {"--ps", "3", "--trainers", "1", "--set", "train.max_steps=80", "--resume"});
  const std::vector<double> unbroken = job_.Losses("unbroken"), resumed = job_.Losses("run");
  ASSERT_EQ(unbroken.size(), 80u);
  ASSERT_EQ(resumed.size(), 80u);
  for (size_t i = 0; i < unbroken.size(); ++i) EXPECT_NEAR(resumed[i] / unbroken[i], 1, 1e-5) << "step " << i + 1;
}

TEST_F(ResumeElsewhereTest, WhatCannotBeResumedIsRefusedAndLeftAsItWas) {
  const support::Ended nothing = job_.Launch("run", {"--local", "--resume"});
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_NE(nothing.err.find("nothing to resume"), std::string::npos) << nothing.err;
  EXPECT_FALSE(fs::exists(job_.Path("run")));

  job_.HashOf("run", kTwoByTwo);
  const std::string summary = job_.Summary("run", "params_hash");
  const support::Ended other = job_.Launch("run", With(kTwoByTwo, {"--resume", "--set", "seed=9"}));
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_NE(other.err.find("seed"), std::string::npos) << other.err;

  const fs::path checkpoint = *fs::directory_iterator(job_.Path("run/checkpoints"));
  const std::string dense = (checkpoint / "dense.safetensors").string();
  std::fstream(dense, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<long>(fs::file_size(dense)) - 1).put('\x55');
  const support::Ended damaged = job_.Launch("run", With(kTwoByTwo, {"--resume"}));
  EXPECT_EQ(damaged.exit_code, 4);
  EXPECT_NE(damaged.err.find("dense.safetensors"), std::string::npos) << damaged.err;
  EXPECT_EQ(damaged.ErrorLines().size(), 1u) << damaged.err;
  EXPECT_EQ(job_.Summary("run", "params_hash"), summary);
  EXPECT_EQ(job_.Losses("run").size(), 20u);
}

}  // namespace
}  // namespace tandem::cluster
