// Runs that are stopped, killed or refused, and go on. They end as the unbroken run does, bit for
// bit.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

#include "tests/cluster/small_job.h"
#include "tests/trainer/checkpoint/file_damage.h"

namespace tandem::cluster {
namespace {

namespace fs = std::filesystem;

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
  // Starts a run, sends the signal once `reached` holds, and returns the exit code.
  template <class Reached>
  int BreakOff(const std::string& out, const Arguments& arguments, int signal,
               const Reached& reached) {
    const auto launch = job_.Start("launch", out, arguments);
    bool has_reached = false;
    const auto settled = [&] { return (has_reached = reached()) || launch->HasEnded(); };
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds, settled));
    kill(launch->pid(), signal);
    const support::Ended ended = launch->WaitWhileItWorks();
    EXPECT_TRUE(has_reached) << "it ended before it had got so far, with " << ended.exit_code
                             << ": " << ended.err;
    return ended.exit_code;
  }

  SmallJob job_{GetParam().kind};
  const Arguments run_ = With(
      GetParam().layout, {"--set", "train.max_steps=600", "--set", "train.eval_every_steps=100"});
};

TEST_P(ResumeTest, StoppedAndResumedEndsWithTheBitsOfTheUnbrokenRun) {
  const std::string unbroken = job_.HashOf("unbroken", run_);
  ASSERT_EQ(BreakOff("run", run_, SIGTERM, [this] { return job_.HasLoggedAStep("run"); }),
            128 + SIGTERM);
  EXPECT_EQ(job_.Summary("run", "status"), "stopped");
  EXPECT_EQ(job_.HashOf("run", With(run_, {"--resume"})), unbroken);
  EXPECT_EQ(job_.Losses("run"), job_.Losses("unbroken")) << "metrics.jsonl goes on where it ended";
}

TEST_P(ResumeTest, KilledWhileItWritesCheckpointsGoesOnFromAWholeOne) {
  const Arguments run = With(run_, {"--set", "checkpoint.every_steps=1"});
  const std::string unbroken = job_.HashOf("unbroken", run_);
  ASSERT_EQ(BreakOff("run", run, SIGKILL, [this] { return job_.HasCheckpoint("run"); }),
            128 + SIGKILL);
  job_.ExpectNothingLeft(/*moment_seconds=*/5);
  EXPECT_EQ(job_.HashOf("run", With(run_, {"--resume"})), unbroken);
}

// With an evaluation after every step, a stop comes before or within one. With one after every
// seventh step, a stop mostly comes between two.
TEST_P(ResumeTest, StoppedAmidItsEvaluationsAndResumedHasTheFiguresOfTheUnbrokenRun) {
  const auto metrics = [this](const std::string& out) {
    const std::string summary = job_.Read(out + "/summary.json");
    const size_t begin = summary.find("\"metrics\"");
    return summary.substr(begin, summary.find('}', begin) - begin);
  };
  const std::map<std::string, std::string> patience_of_interval{{"1", "200"}, {"7", "30"}};
  for (const auto& [interval, patience] : patience_of_interval) {
    SCOPED_TRACE("every " + interval);
    const Arguments run = With(GetParam().layout, {"--set", "train.max_steps=600", "--set",
                                                   "train.eval_every_steps=" + interval, "--set",
                                                   "train.patience=" + patience});
    const std::string unbroken = "unbroken" + interval, broken = "run" + interval,
                      file = "/evaluations.jsonl";
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

INSTANTIATE_TEST_SUITE_P(
    Jobs, ResumeTest,
    testing::Values(
        Case{"RecommendationLocal", SmallJobKind::RECOMMENDATION, {"--local"}},
        Case{"RecommendationTwoByTwo", SmallJobKind::RECOMMENDATION, kTwoByTwo},
        Case{"LanguageLocalReplicas", SmallJobKind::LANGUAGE, {"--local", "--trainers", "2"}},
        Case{"LanguageTwoByTwo", SmallJobKind::LANGUAGE, kTwoByTwo},
        Case{"ServedTwoByTwo", SmallJobKind::SERVED, kTwoByTwo}),
    [](const auto& info) { return info.param.name; });

class ResumeElsewhereTest : public testing::Test {
 protected:
  SmallJob job_;
};

TEST_F(ResumeElsewhereTest, AnotherNumberOfServersAndTrainersTrainsOnWithTheSameLoss) {
  job_.HashOf("unbroken", With(kTwoByTwo, {"--set", "train.max_steps=80"}));
  job_.HashOf("run", With(kTwoByTwo,
                          {"--set", "train.max_steps=30", "--set", "checkpoint.every_steps=30"}));
  job_.HashOf("run", {"--ps", "3", "--trainers", "1", "--set", "train.max_steps=80", "--resume"});
  const std::vector<double> unbroken = job_.Losses("unbroken"), resumed = job_.Losses("run");
  ASSERT_EQ(unbroken.size(), 80u);
  ASSERT_EQ(resumed.size(), 80u);
  for (size_t i = 0; i < unbroken.size(); ++i)
    EXPECT_NEAR(resumed[i] / unbroken[i], 1, 1e-5) << "step " << i + 1;
}

using Contents = std::map<std::string, std::string>;  // of every file below a folder

Contents ContentsOf(const std::string& folder) {
  Contents contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      contents[entry.path().lexically_relative(folder).string()] = ReadBytes(entry.path().string());
  }
  return contents;
}

// Starts from a run that was killed at step 20 with its last checkpoint at step 10. A new start
// would truncate the run's records; a failure would write a summary.
class RefusedTest : public testing::TestWithParam<SmallJobKind> {
 protected:
  void LeaveBrokenRun(const Arguments& arguments) {
    job_.HashOf("run",
                With(arguments, {"--set", "checkpoint.every_steps=10", "--set", "checkpoint.keep=2",
                                 "--set", "train.eval_every_steps=100"}));
    fs::remove_all(Checkpoint(20));
    fs::remove(job_.Path("run/summary.json"));
    ASSERT_EQ(job_.Losses("run").size(), 20u);
    ASSERT_TRUE(fs::exists(Checkpoint(10)));
  }

  // Expects, in one process and in five: exit code 4, one line with `words`, and a run folder
  // unchanged to the byte.
  void ExpectRefused(const Arguments& arguments, const std::vector<std::string>& words) {
    const Contents before = ContentsOf(job_.Path("run"));
    for (const Arguments& layout : {Arguments{"--local"}, kTwoByTwo}) {
      const support::Ended ended = job_.Launch("run", With(With(arguments, layout), {"--resume"}));
      EXPECT_EQ(ended.exit_code, 4) << ended.err;
      EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
      for (const std::string& word : words)
        EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in " << ended.err;
      EXPECT_TRUE(ContentsOf(job_.Path("run")) == before) << layout[0] << " " << words[0];
    }
  }

  std::string Checkpoint(int step) const {
    return job_.Path("run/checkpoints/step-000000") + std::to_string(step);
  }

  SmallJob job_{GetParam()};
};

TEST_P(RefusedTest, WithoutACheckpointThereIsNothingToResume) {
  const support::Ended nothing = job_.Launch("run", {"--local", "--resume"});
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_NE(nothing.err.find("nothing to resume"), std::string::npos) << nothing.err;
  EXPECT_FALSE(fs::exists(job_.Path("run")));
}

TEST_P(RefusedTest, WhatCannotBeResumedIsRefusedAndLeftAsItWas) {
  LeaveBrokenRun(kTwoByTwo);
  ExpectRefused({"--set", "seed=9"}, {"seed"});
  int num_rows = 0;
  for (const auto& [name, bytes] : ContentsOf(Checkpoint(10))) {
    SCOPED_TRACE(name);
    const std::string path = Checkpoint(10) + "/" + name;
    FlipByte(path, bytes.size() / 2);
    ExpectRefused({}, {name});
    WriteBytes(path, bytes);
    num_rows += name.ends_with(".rows");
    if (num_rows > 1 && name.ends_with(".rows")) continue;  // the others are read alike
    WriteBytes(path, bytes.substr(0, bytes.size() - 1));
    ExpectRefused({}, {name});
    fs::remove(path);
    ExpectRefused({}, {name});
    WriteBytes(path, bytes);
  }
  EXPECT_GT(num_rows, 0);
  job_.HashOf("run",
              With(kTwoByTwo, {"--resume"}));  // all is mended: it was refused for nothing else
}

INSTANTIATE_TEST_SUITE_P(Jobs, RefusedTest,
                         testing::Values(SmallJobKind::RECOMMENDATION, SmallJobKind::LANGUAGE),
                         [](const auto& info) {
                           return info.param == SmallJobKind::LANGUAGE ? "Language"
                                                                       : "Recommendation";
                         });

using RefusedTextTest = RefusedTest;
TEST_P(RefusedTextTest, AnotherTextOfAsManySymbols) {
  LeaveBrokenRun({"--local"});
  std::string text = ReadBytes(job_.log_path());
  std::replace(text.begin(), text.end(), '7', 'x');
  ExpectRefused({"--set", "data.path=" + job_.Write("other.txt", text)},
                {"other.txt", "vocabulary"});
}
INSTANTIATE_TEST_SUITE_P(Jobs, RefusedTextTest, testing::Values(SmallJobKind::LANGUAGE));

// The fault shows only when the weights are put back, after the run has said that it begins.
using RefusedLogTest = RefusedTest;
TEST_P(RefusedLogTest, AnotherCatalogueOfAReplicatedTable) {
  const Arguments replicated{"--set", "placement=REPLICATED"};
  LeaveBrokenRun(With(replicated, {"--local"}));
  const std::string other = job_.Write("other.txt", LogText(90, 75, 9));
  const Arguments changed = With(replicated, {"--set", "data.path=" + other});
  ExpectRefused(changed, {"checkpoint of other data", "other.txt", "--data-changed"});
  ExpectRefused(With(changed, {"--data-changed"}), {"dense.safetensors", "in the job's model"});
}
INSTANTIATE_TEST_SUITE_P(Jobs, RefusedLogTest, testing::Values(SmallJobKind::RECOMMENDATION));

}  // namespace
}  // namespace tandem::cluster
