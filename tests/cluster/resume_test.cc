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

// tests/trainer/loop stops and resumes runs of one process at every place. Here the real programs
// get real signals.
class ResumeTest : public testing::Test {
 protected:
  // Starts a run, sends the signal once `reached` holds, and returns the exit code.
  template <class Reached>
  int BreakOff(SmallJob& job, const std::string& out, const Arguments& arguments, int signal,
               const Reached& reached) {
    const auto launch = job.Start("launch", out, arguments);
    bool has_reached = false;
    const auto settled = [&] { return (has_reached = reached()) || launch->HasEnded(); };
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds, settled));
    kill(launch->pid(), signal);
    const support::Ended ended = launch->WaitWhileItWorks();
    EXPECT_TRUE(has_reached) << "it ended before it had got so far, with " << ended.exit_code
                             << ": " << ended.err;
    return ended.exit_code;
  }

  const Arguments run_ =
      With(kTwoByTwo, {"--set", "train.max_steps=600", "--set", "train.eval_every_steps=100"});
};

TEST_F(ResumeTest, StoppedOrKilledAndResumedEndsWithTheBitsOfTheUnbrokenRun) {
  for (const SmallJobKind kind : {SmallJobKind::RECOMMENDATION, SmallJobKind::SERVED}) {
    SCOPED_TRACE(kind == SmallJobKind::SERVED ? "served" : "recommendation");
    SmallJob job(kind);
    const std::string unbroken = job.HashOf("unbroken", run_);
    ASSERT_EQ(BreakOff(job, "run", run_, SIGTERM, [&] { return job.HasLoggedAStep("run"); }),
              128 + SIGTERM);
    EXPECT_EQ(job.Summary("run", "status"), "stopped");
    EXPECT_EQ(job.HashOf("run", With(run_, {"--resume"})), unbroken);
    EXPECT_EQ(job.Losses("run"), job.Losses("unbroken")) << "metrics.jsonl goes on where it ended";

    const Arguments saving = With(run_, {"--set", "checkpoint.every_steps=1"});
    ASSERT_EQ(BreakOff(job, "killed", saving, SIGKILL, [&] { return job.HasCheckpoint("killed"); }),
              128 + SIGKILL);
    job.ExpectNothingLeft(/*moment_seconds=*/5);
    EXPECT_EQ(job.HashOf("killed", With(run_, {"--resume"})), unbroken);
  }
}

// With an evaluation after every step, a stop comes before or within one.
TEST_F(ResumeTest, StoppedAmidItsEvaluationsAndResumedHasTheFiguresOfTheUnbrokenRun) {
  SmallJob job(SmallJobKind::LANGUAGE);
  const auto metrics = [&job](const std::string& out) {
    const std::string summary = job.Read(out + "/summary.json");
    const size_t begin = summary.find("\"metrics\"");
    return summary.substr(begin, summary.find('}', begin) - begin);
  };
  const Arguments run =
      With(kTwoByTwo, {"--set", "train.max_steps=600", "--set", "train.eval_every_steps=1", "--set",
                       "train.patience=200"});
  const std::string file = "/evaluations.jsonl", hash = job.HashOf("unbroken", run);
  for (const int evaluations : {3, 12}) {
    const auto reached = [&] {
      const std::string lines = job.Read("run" + file);
      return std::count(lines.begin(), lines.end(), '\n') >= evaluations;
    };
    const Arguments go_on = evaluations == 3 ? run : With(run, {"--resume"});
    ASSERT_EQ(BreakOff(job, "run", go_on, SIGTERM, reached), 128 + SIGTERM);
  }
  EXPECT_EQ(job.HashOf("run", With(run, {"--resume"})), hash);
  for (const char* field : {"steps", "best_step", "best_epoch"})
    EXPECT_EQ(job.Summary("run", field), job.Summary("unbroken", field)) << field;
  EXPECT_EQ(metrics("run"), metrics("unbroken"));
  EXPECT_EQ(job.Read("run" + file), job.Read("unbroken" + file));
}

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

  // Expects, in one process and in five in turn: exit code 4, one line with `words`, and a run
  // folder unchanged to the byte.
  void ExpectRefused(const Arguments& arguments, const std::vector<std::string>& words) {
    const Contents before = ContentsOf(job_.Path("run"));
    const Arguments layout = num_refused_++ % 2 == 0 ? kTwoByTwo : Arguments{"--local"};
    const support::Ended ended = job_.Launch("run", With(With(arguments, layout), {"--resume"}));
    EXPECT_EQ(ended.exit_code, 4) << ended.err;
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    for (const std::string& word : words)
      EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in " << ended.err;
    EXPECT_TRUE(ContentsOf(job_.Path("run")) == before) << layout[0] << " " << words[0];
  }

  std::string Checkpoint(int step) const {
    return job_.Path("run/checkpoints/step-000000") + std::to_string(step);
  }

  SmallJob job_{GetParam()};
  int num_refused_ = 0;
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
  // Each file gets one kind of damage. tests/trainer/checkpoint does every kind to every file.
  int num_files = 0, num_rows = 0;
  for (const auto& [name, bytes] : ContentsOf(Checkpoint(10))) {
    SCOPED_TRACE(name);
    const std::string path = Checkpoint(10) + "/" + name;
    switch (num_files++ % 3) {
      case 0:
        FlipByte(path, bytes.size() / 2);
        break;
      case 1:
        WriteBytes(path, bytes.substr(0, bytes.size() - 1));
        break;
      default:
        fs::remove(path);
    }
    ExpectRefused({}, {name});
    WriteBytes(path, bytes);
    num_rows += name.ends_with(".rows");
  }
  EXPECT_GE(num_files, 3);
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
  for (int layout = 0; layout < 2; ++layout)
    ExpectRefused(With(changed, {"--data-changed"}), {"dense.safetensors", "in the job's model"});
}
INSTANTIATE_TEST_SUITE_P(Jobs, RefusedLogTest, testing::Values(SmallJobKind::RECOMMENDATION));

}  // namespace
}  // namespace tandem::cluster
