// Exhausted resources: the error names the resource, or the file that could not be written. The
// exit code is 75.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

namespace fs = std::filesystem;

const Arguments kEndless{"--local", "--set", "train.max_steps=1000000", "--set",
                         "train.max_epochs=1000000"};

class LimitsTest : public testing::Test {
 protected:
  // A shell line: `tandem launch` of the job, after `setting` and with `redirection`.
  std::string Line(const std::string& setting, const std::string& arguments,
                   const std::string& redirection) const {
    return absl::StrCat(setting, "; exec ", TANDEM_BINARY, " launch ", job_.job_path(),
                        " --set data.path=", job_.log_path(), " --out ", job_.Path("run"),
                        " --overwrite ", arguments, " ", redirection);
  }
  support::Ended LaunchInShell(const std::string& setting, const std::string& arguments,
                               const std::string& redirection = "") {
    return InShell(Line(setting, arguments, redirection));
  }
  support::Ended InShell(const std::string& line) {
    return support::Process(job_.Path(""), {"/bin/bash", "-c", line}).WaitWhileItWorks();
  }
  void ExpectTemporary(const support::Ended& ended, const std::vector<std::string>& words) {
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    for (const std::string& word : words)
      EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in " << ended.err;
  }

  SmallJob job_;
};

TEST_F(LimitsTest, TooFewFilesOrAddressesAreNamedBeforeARoleStarts) {
  ExpectTemporary(LaunchInShell("ulimit -n 12", "--ps 2"), {"12 files (ulimit -n)", "at least"});
#ifndef TANDEM_SANITIZED
  ExpectTemporary(LaunchInShell("ulimit -v 819200", "--ps 2"),
                  {"800 MiB of addresses (ulimit -v)", "at least"});
#endif
}

TEST_F(LimitsTest, AFileThatMayNotGrowIsNamed) {
  ExpectTemporary(LaunchInShell("ulimit -f 4", "--local"), {"File too large", job_.Path("run")});
}

TEST_F(LimitsTest, RecordsThatCannotBeWrittenEndTheRun) {
  for (const char* file : {"metrics.jsonl", "evaluations.jsonl"}) {
    fs::remove_all(job_.Path("run"));
    fs::create_directories(job_.Path("run"));
    fs::create_symlink("/dev/full", job_.Path(std::string("run/") + file));
    for (const char* layout : {"--local", "--ps 1 --trainers 2"}) {
      ExpectTemporary(
          LaunchInShell("true", absl::StrCat(layout, " --set train.eval_every_steps=5")),
          {file, "No space left on device"});
    }
  }
}

TEST_F(LimitsTest, OutputThatCannotBeWrittenEndsTheRun) {
  ExpectTemporary(LaunchInShell("true", "--local", ">/dev/full"),
                  {"standard output: what the run tells there is lost"});
  EXPECT_EQ(LaunchInShell("true", "--local", ">&-").exit_code, 0) << "nobody wanted the output";
  ExpectTemporary(InShell(absl::StrCat(TANDEM_BINARY, " inspect ", job_.Path("run/checkpoints"),
                                       " >/dev/full")),
                  {"standard output"});
}

TEST_F(LimitsTest, OutputThatNobodyWantsGoesIntoNoFileOfTheRun) {
  const std::string endless = absl::StrJoin(kEndless, " ");
  support::Process launch(job_.Path(""), {"/bin/bash", "-c", Line("true", endless, ">&-")});
  // The run prints about a step after it writes the step's record.
  ASSERT_TRUE(support::Eventually(support::kPatienceSeconds,
                                  [this] { return job_.Losses("run").size() > 1; }));
  const std::string lock = job_.Read("run/.lock");
  EXPECT_EQ(std::count(lock.begin(), lock.end(), '\n'), 1)
      << "the lock's file is the first that the run opens: " << lock;
  kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.WaitWhileItWorks().exit_code, 128 + SIGTERM);
}

TEST_F(LimitsTest, AFolderThatIsRemovedUnderTheRunIsNamed) {
  const auto launch = job_.Start("launch", "run", kEndless);
  ASSERT_TRUE(support::Eventually(support::kPatienceSeconds,
                                  [this] { return job_.HasLoggedAStep("run"); }));
  fs::remove_all(job_.Path("run"));
  ExpectTemporary(launch->Wait(), {"metrics.jsonl was removed while the run wrote it"});
}

}  // namespace
}  // namespace tandem::cluster
