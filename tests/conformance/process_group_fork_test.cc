// CpuGroup with ranks that are real processes. They compute the closed form.
// When one rank is killed, the other ranks get an error in time and nothing stays in /dev/shm.
#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/file_store.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/host/cpu_group.h"

namespace tandem::comm {
namespace {

// Forks one process per rank, whose exit code is `body`'s result. Returns the wait status by rank.
std::vector<int> ForkRanks(int size, absl::Duration timeout,
                           const std::function<int(ProcessGroup&)>& body) {
  FileStore store;
  const std::string token = NewToken();
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      auto group = CpuGroup::Create({&store, token, "world", rank, size, timeout}, Soon());
      const int code = group.ok() ? body(**group) : 99;
      if (group.ok()) group->reset();
      _exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> statuses(size);
  for (int rank = 0; rank < size; ++rank) waitpid(children[rank], &statuses[rank], 0);
  EXPECT_TRUE(SharedMemoryNames().empty());
  return statuses;
}

int SumIsRight(ProcessGroup& group, int64_t count) {
  std::vector<float> values(count, static_cast<float>(group.rank() + 1));
  if (!group.AllReduce(DenseView(values.data(), {count}), Args()).Wait(Soon()).ok()) return 1;
  const float expected = static_cast<float>(group.size() * (group.size() + 1) / 2);
  for (float value : values) {
    if (value != expected) return 2;
  }
  return 0;
}

TEST(CpuGroupForkTest, ProcessesSumSmallAndLargeArrays) {
  const std::vector<int> statuses = ForkRanks(3, absl::Seconds(20), [](ProcessGroup& group) {
    for (int round = 0; round < 5; ++round) {
      for (int64_t count : {1, 1000, 700001}) {
        if (const int code = SumIsRight(group, count); code != 0) return code;
      }
    }
    return 0;
  });
  EXPECT_EQ(statuses, std::vector<int>(3, 0));
}

TEST(CpuGroupForkTest, BuffersOfSplitGroupsAreReducedInPlace) {
  const std::vector<int> statuses = ForkRanks(4, absl::Seconds(20), [](ProcessGroup& group) {
    auto half = group.Split(group.rank() / 2, 0, "half", Soon());
    if (!half.ok()) return 1;
    const int64_t count = 300001;
    auto buffer = (*half)->Allocate(count * sizeof(double));
    if (!buffer.ok()) return 2;
    auto* values = static_cast<double*>((*buffer)->data());
    std::fill(values, values + count, group.rank());
    if (!(*half)->AllReduce(DenseView(values, {count}), Args()).Wait(Soon()).ok()) return 3;
    const double expected = group.rank() / 2 == 0 ? 1 : 5;
    return std::count(values, values + count, expected) == count ? 0 : 4;
  });
  EXPECT_EQ(statuses, std::vector<int>(4, 0));
}

// Rank 1 dies in the middle of back-to-back all-reduces of `count` elements.
void CheckKilledRank(int64_t count) {
  const std::vector<int> statuses =
      ForkRanks(3, absl::Milliseconds(700), [count](ProcessGroup& group) {
        std::vector<float> values(count, 1);
        const absl::Time start = absl::Now();
        for (int round = 0; round < 1000; ++round) {
          const Work work = group.AllReduce(DenseView(values.data(), {count}), Args(ReduceOp::MAX));
          if (group.rank() == 1 && round == 20) kill(getpid(), SIGKILL);
          const absl::Status status = work.Wait(Soon());
          if (status.ok()) continue;
          if (!absl::IsDeadlineExceeded(status)) return 1;
          if (!absl::StrContains(std::string(status.message()), "rank 1 did not arrive")) return 2;
          return absl::Now() - start < absl::Seconds(10) ? 0 : 3;
        }
        return 4;
      });
  EXPECT_EQ(WTERMSIG(statuses[1]), SIGKILL);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[2], 0);
}

TEST(CpuGroupForkTest, SurvivorsOfAKilledRankGetAnErrorThatNamesIt) { CheckKilledRank(100); }
TEST(CpuGroupForkTest, SurvivorsOfARankKilledInsideTheRingGetAnErrorThatNamesIt) {
  CheckKilledRank(500000);
}

}  // namespace
}  // namespace tandem::comm
