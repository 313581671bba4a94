// Which commands may write into an --out folder, and what happens to a run that is already there.
// One run at a time writes into a folder. No run is overwritten silently.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/cluster/small_job.h"
#include "tests/trainer/checkpoint/file_damage.h"

namespace tandem::cluster {
namespace {

namespace fs = std::filesystem;

constexpr double kDeadlineSeconds = support::kPatienceSeconds;
const Arguments kOneByOne{"--ps", "1", "--trainers", "1"};
const Arguments kEndless{"--set", "train.max_steps=1000000",  "--set", "train.max_epochs=1000000",
                         "--set", "train.eval_every_epochs=3"};

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class OutFolderTest : public testing::Test {
 protected:
  // Returns once a checkpoint is there and the run goes on.
  std::unique_ptr<support::Process> StartEndless(const Arguments& layout) {
    auto launch = job_.Start("launch", "run", With(layout, kEndless));
    EXPECT_TRUE(
        support::Eventually(kDeadlineSeconds, [this] { return job_.HasCheckpoint("run"); }));
    return launch;
  }
  support::Ended TryLaunch(const Arguments& arguments) {
    return job_.Start("launch", "run", With(arguments, {"--set", "train.max_steps=4"}))
        ->Wait(kDeadlineSeconds);
  }
  void ExpectRefused(const support::Ended& ended, int code, const std::vector<std::string>& words) {
    EXPECT_EQ(ended.exit_code, code) << ended.err;
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    for (const std::string& word : words)
      EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in " << ended.err;
  }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(job_.Path("run")))
      names.push_back(entry.path().filename().string());
    return names;
  }

  SmallJob job_;
};

TEST_F(OutFolderTest, RunThatLivesKeepsItsFolderFromOthers) {
  int num_refused = 0;
  for (const Arguments& layout : {Arguments{"--local"}, kOneByOne}) {
    const auto owner = StartEndless(layout);
    ++num_refused;  // each way meets both layouts of the second run
    for (const Arguments& way : {Arguments{}, {"--resume"}, {"--resume=auto"}, {"--overwrite"}}) {
      const Arguments second = num_refused++ % 2 == 0 ? kOneByOne : Arguments{"--local"};
      const support::Ended ended = TryLaunch(With(second, way));
      ExpectRefused(ended, 2, {"a run has it: launch on ", absl::StrCat("pid ", owner->pid())});
      EXPECT_LT(ended.seconds, 3);
    }
    const size_t steps = job_.Losses("run").size();
    EXPECT_TRUE(support::Eventually(kDeadlineSeconds, [&] {
      return job_.Losses("run").size() > steps;
    })) << "the owner is unharmed";
    kill(owner->pid(), SIGTERM);
    EXPECT_EQ(owner->Wait(kDeadlineSeconds).exit_code, 128 + SIGTERM);
    for (const std::string& name : Entries()) EXPECT_NE(name, ".lock");
    fs::remove_all(job_.Path("run"));
  }
}

TEST_F(OutFolderTest, RunStartedByHandKeepsItsFolderFromLaunch) {
  const std::string master = support::ListeningPort().address();
  std::vector<std::unique_ptr<support::Process>> roles;
  for (const char* role : {"master", "ps", "trainer"})
    roles.push_back(job_.Start(role, "run", With(kEndless, {"--master", master})));
  ASSERT_TRUE(support::Eventually(kDeadlineSeconds, [this] { return job_.HasCheckpoint("run"); }));
  ExpectRefused(TryLaunch(With(kOneByOne, {"--overwrite"})), 2,
                {"a run has it: trainer-0 on ", absl::StrCat("pid ", roles[2]->pid())});
  kill(roles[2]->pid(), SIGTERM);
  EXPECT_EQ(roles[2]->Wait(kDeadlineSeconds).exit_code, 128 + SIGTERM);
}

TEST_F(OutFolderTest, RunThatIsJustEndingIsWaitedFor) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto owner = StartEndless(kOneByOne);
    kill(owner->pid(), signal);
    const support::Ended next = TryLaunch(With(kOneByOne, {"--overwrite"}));
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_EQ(owner->Wait(kDeadlineSeconds).exit_code, 128 + signal);
    EXPECT_EQ(job_.Losses("run").size(), 4u) << "the older run wrote into the newer";
    fs::remove_all(job_.Path("run"));
  }
}

TEST_F(OutFolderTest, RunInTheFolderIsRefusedUntilItIsSaidWhatBecomesOfIt) {
  for (const Arguments& layout : {Arguments{"--local"}, kOneByOne}) {
    ASSERT_EQ(TryLaunch(layout).exit_code, 0);
    const std::string summary = job_.Read("run/summary.json");
    ExpectRefused(TryLaunch(layout), 2,
                  {"holds a run that has completed", "--resume ", "--resume=auto", "--overwrite"});
    const support::Ended finished = TryLaunch(With(layout, {"--resume=auto"}));
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_NE(finished.out.find("already complete"), std::string::npos) << finished.out;
    EXPECT_EQ(job_.Read("run/summary.json"), summary);
    fs::remove(job_.Path("run/summary.json"));
    ExpectRefused(TryLaunch(layout), 2, {"holds a run that was broken off"});
    EXPECT_TRUE(job_.HasCheckpoint("run"));
    ExpectRefused(TryLaunch(With(layout, {"--overwrite", "--resume"})), 2, {"give one of them"});
    EXPECT_EQ(TryLaunch(With(layout, {"--overwrite", "--set", "seed=9"})).exit_code, 0);
    EXPECT_EQ(job_.Summary("run", "seed"), "9");
    fs::remove_all(job_.Path("run"));
  }
}

TEST_F(OutFolderTest, FolderWithoutARunIsUsed) {
  fs::create_directories(job_.Path("run/checkpoints"));
  job_.Write("run/notes.txt", "mine");
  for (const char* way : {"--overwrite", "--resume=auto"}) {
    const support::Ended ended = TryLaunch({"--local", way});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(job_.Read("run/notes.txt"), "mine");
    fs::remove(job_.Path("run/summary.json"));
    fs::remove_all(job_.Path("run/checkpoints"));
  }
  ExpectRefused(TryLaunch({"--local", "--resume"}), 4, {"nothing to resume", "--resume=auto"});
}

TEST_F(OutFolderTest, DamagedNewestCheckpointIsNamedWithTheNewestWholeOne) {
  const Arguments run{"--set", "train.max_steps=30", "--set", "checkpoint.every_steps=10",
                      "--set", "checkpoint.keep=3"};
  for (const Arguments& layout : {Arguments{"--local"}, kOneByOne}) {
    const std::string unbroken = job_.HashOf("run", With(layout, run));
    const std::string whole = job_.Path("run/checkpoints/step-00000020");
    FlipByte(job_.Path("run/checkpoints/step-00000030/dense.safetensors"), 300);
    const Arguments longer = With(With(layout, run), {"--set", "train.max_steps=30"});
    ExpectRefused(job_.Launch("run", With(longer, {"--resume"})), 4,
                  {"step-00000030", "the newest whole one: --resume=" + whole});
    EXPECT_EQ(job_.HashOf("run", With(longer, {"--resume=" + whole})), unbroken);
    EXPECT_EQ(job_.Losses("run").size(), 30u);
    EXPECT_EQ(job_.HashOf("run", With(longer, {"--resume"})), unbroken)
        << "the damaged one gave way to a whole one";
    if (layout[0] == "--local") {
      fs::remove_all(job_.Path("run"));
      continue;
    }
    // Resuming from another run's checkpoint: the records begin after the checkpoint's step.
    EXPECT_EQ(job_.HashOf("other", With(longer, {"--resume=" + whole})), unbroken);
    EXPECT_EQ(job_.Losses("other").size(), 10u);
    ExpectRefused(job_.Launch("other", With(longer, {"--resume=" + whole})), 2,
                  {"holds a run", "of another"});
    fs::remove_all(job_.Path("run"));
    fs::remove_all(job_.Path("other"));
  }
}

TEST_F(OutFolderTest, SecondLaunchOnAPortLeavesTheFirstUnharmed) {
  const std::string master = support::ListeningPort().address();
  const auto first = StartEndless(With(kOneByOne, {"--master", master}));
  const support::Ended second = job_.Launch("second", With(kOneByOne, {"--master", master}));
  ExpectRefused(second, 75, {"port in use: " + master});
  EXPECT_FALSE(fs::exists(job_.Path("second"))) << "what was made for the run is gone";
  const size_t steps = job_.Losses("run").size();
  EXPECT_TRUE(
      support::Eventually(kDeadlineSeconds, [&] { return job_.Losses("run").size() > steps; }));
  kill(first->pid(), SIGTERM);
  EXPECT_EQ(first->Wait(kDeadlineSeconds).exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace tandem::cluster
