// kill -9 at any moment of writing: the newest complete checkpoint and the best one are always
// there and whole.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

#include "kernels/base/random.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/checkpoint/counting_run.h"

namespace tandem::checkpoint {
namespace {

constexpr int kKills = 40;
constexpr uint64_t kForEver = 1'000'000;

std::vector<std::string> HiddenNames(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name[0] == '.') names.push_back(name);
  }
  return names;
}

class KillTest : public testing::Test {
 protected:
  std::vector<std::string> Command(uint64_t num_steps) const {
    return {TANDEM_ENDLESS_WRITER, folder_, std::to_string(num_steps)};
  }
  // Expects a folder from which a run can resume after a kill. Returns the newest step.
  uint64_t ExpectWhole(uint64_t at_least) {
    CountingRun run;
    const auto newest = run.Restore(folder_, Choice::NEWEST);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return at_least;
    EXPECT_GE(newest->step(), at_least) << "a checkpoint that was complete is gone";
    const auto best = run.Restore(folder_, Choice::BEST);
    EXPECT_TRUE(best.ok()) << best.status();
    if (best.ok() && newest->best_step() != 0) {
      // A checkpoint that knows it is the best may have replaced the newest one. No other best
      // checkpoint may be lost.
      EXPECT_GE(best->step(), newest->best_step());
      EXPECT_EQ(best->step(), best->best_step());
    }
    return newest->step();
  }

  const support::TempFolder temp_;
  const std::string folder_ = temp_ / "checkpoints";
};

TEST_F(KillTest, NewestAndBestCheckpointSurviveEveryKill) {
  // Two undisturbed steps give the kills something to lose and show how long a write takes on this
  // machine.
  const support::Ended first = support::Process(temp_.path(), Command(2)).WaitWhileItWorks();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  uint64_t newest = ExpectWhole(2);
  size_t interrupted = 0;
  for (int round = 0; round < kKills; ++round) {
    support::Process writer(temp_.path(), Command(kForEver));
    const double moment =
        1.5 * first.seconds * UnitFloat(Fmix64(static_cast<uint64_t>(round) + 1) >> 32);
    std::this_thread::sleep_for(std::chrono::duration<double>(moment));
    kill(writer.pid(), SIGKILL);
    const support::Ended ended = writer.Wait();
    ASSERT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
    interrupted += HiddenNames(folder_).empty() ? 0 : 1;
    newest = ExpectWhole(newest);
  }
  EXPECT_GT(newest, uint64_t{kKills} / 8) << "the writer must get on between kills";
  EXPECT_GT(interrupted, size_t{kKills} / 4) << "kills must hit the writing";
  const support::Ended last = support::Process(temp_.path(), Command(3)).WaitWhileItWorks();
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(ExpectWhole(newest + 3), newest + 3);
  EXPECT_EQ(HiddenNames(folder_), std::vector<std::string>())
      << "what dead writers left goes with the next checkpoint";
  EXPECT_LE(ListCheckpoints(folder_).size(), size_t{CountingRun::kKeep} + 1);
}

}  // namespace
}  // namespace tandem::checkpoint
