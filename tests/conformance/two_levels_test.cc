// Groups whose hosts each hold a whole subtree of ranks: the layouts, the order of sums, and what a
// lost rank looks like.
#include "trainer/comm/net/two_levels.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/random.h"
#include "tests/conformance/file_store.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/net/trainers_group.h"

namespace tandem::comm {
namespace {

TEST(HostGridTest, HostsThatHoldWholeSubtreesMakeAGrid) {
  const auto grid = [](const std::vector<int>& memory) {
    const auto found = GridOf(memory);
    return found ? std::pair(found->hosts, found->per_host) : std::pair(0, 0);
  };
  const std::pair none(0, 0);
  EXPECT_EQ(grid({0, 0, 2, 2}), std::pair(2, 2));
  EXPECT_EQ(grid({0, 0, 0, 3, 3, 3}), std::pair(2, 3));
  EXPECT_EQ(grid({0, 0, 2, 2, 4, 4, 6, 6}), std::pair(4, 2));
  EXPECT_EQ(grid({0, 1}), none);                    // no memory in common
  EXPECT_EQ(grid({0, 0, 0, 0}), none);              // one host
  EXPECT_EQ(grid({0, 0, 2, 2, 4, 4}), none);        // three hosts: a subtree has three ranks
  EXPECT_EQ(grid({0, 1, 0, 1}), none);              // ranks of a host are no neighbours
  EXPECT_EQ(grid({0, 0, 2}), none);                 // hosts are not alike
  EXPECT_EQ(grid({0, 0, 2, 3, 4, 4, 6, 7}), none);  // nor here
}

// Numbers of very different magnitude: another order of sums gives other bits.
std::vector<float> Wild(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = RandomBits({7, static_cast<uint64_t>(rank)}, 0, i);
    values[i] = std::ldexp(UnitFloat(bits) - 0.5f, static_cast<int>(bits % 24));
  }
  return values;
}

std::vector<float> Sum(Kind kind, int size, SumOrder order, bool scatter, int64_t count) {
  std::vector<std::vector<float>> sums(static_cast<size_t>(size));
  RunRanks(kind, size, [&](ProcessGroup& group) {
    std::vector<float>& mine = sums[group.rank()];
    std::vector<float> input = Wild(group.rank(), count * (scatter ? size : 1));
    mine.resize(static_cast<size_t>(count));
    const ArrayView output = DenseView(mine.data(), {count});
    if (!scatter) mine = input;
    const Work work = scatter ? group.ReduceScatter(output, DenseView(input.data(), {count * size}),
                                                    Args(ReduceOp::SUM, order))
                              : group.AllReduce(output, Args(ReduceOp::SUM, order));
    ASSERT_TRUE(work.Wait(Soon()).ok());
  });
  std::vector<float> all;
  for (const std::vector<float>& mine : sums) all.insert(all.end(), mine.begin(), mine.end());
  return all;
}

TEST(TwoLevelsTest, EverySumHasTheBitsOfTheTree) {
  for (const int size : {4, 6, 8}) {
    // One round, part of a piece, and several pieces with a rest.
    for (const int64_t count : {int64_t{301}, int64_t{40001}, int64_t{3000001}}) {
      const bool scatter = count < 3000000;
      for (const SumOrder order : kSumOrders) {
        const auto tree = Sum(Kind::THREAD, size, SumOrder::TREE, false, count);
        const auto found = Sum(Kind::HOSTS, size, order, false, count);
        EXPECT_EQ(std::memcmp(tree.data(), found.data(), tree.size() * sizeof(float)), 0)
            << size << " ranks, " << count;
        if (!scatter) continue;
        EXPECT_TRUE(Sum(Kind::THREAD, size, SumOrder::TREE, true, count) ==
                    Sum(Kind::HOSTS, size, order, true, count))
            << size << " ranks, " << count;
      }
    }
  }
}

TEST(TwoLevelsTest, PiecesOfGathersScattersAndBroadcastsComeWhereTheyBelong) {
  constexpr int64_t kCount = 1200007;  // three pieces
  RunRanks(Kind::HOSTS, 4, [](ProcessGroup& group) {
    const int size = group.size();
    std::vector<float> all(kCount * size), mine(kCount);
    const auto value = [](int64_t rank, int64_t i) {
      return static_cast<float>((rank * kCount + i) % 65521);
    };
    const auto wrong = [&](const std::vector<float>& found, auto expected) {
      int64_t count = 0;
      for (size_t i = 0; i < found.size(); ++i)
        count += found[i] != expected(static_cast<int64_t>(i));
      return count;
    };
    for (int64_t i = 0; i < kCount; ++i) mine[i] = value(group.rank(), i);
    const ArrayView whole = DenseView(all.data(), {kCount * size}),
                    part = DenseView(mine.data(), {kCount});
    ASSERT_TRUE(group.AllGather(whole, part, Args()).Wait(Soon()).ok());
    EXPECT_EQ(wrong(all, [&](int64_t i) { return value(i / kCount, i % kCount); }), 0);
    ASSERT_TRUE(group.ReduceScatter(part, whole, Args()).Wait(Soon()).ok());
    EXPECT_EQ(wrong(mine, [&](int64_t i) { return 4 * value(group.rank(), i); }), 0);
    for (int root = 0; root < size; ++root) {
      for (int64_t i = 0; i < kCount; ++i) mine[i] = value(group.rank(), i);
      ASSERT_TRUE(group.Broadcast(part, root, Args()).Wait(Soon()).ok());
      EXPECT_EQ(wrong(mine, [&](int64_t i) { return value(root, i); }), 0) << root;
    }
  });
}

TEST(TwoLevelsTest, RanksThatDisagreeGetBothDescriptions) {
  RunRanks(Kind::HOSTS, 4, [](ProcessGroup& group) {
    std::vector<float> values(500000, 1);
    const ArrayView view = DenseView(values.data(), {500000});
    const Work work =
        group.rank() == 3 ? group.Broadcast(view, 0, Args()) : group.AllReduce(view, Args());
    const absl::Status status = work.Wait(Soon());
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    for (const char* text : {"AllReduce #0", "Broadcast #0"})
      EXPECT_TRUE(absl::StrContains(std::string(status.message()), text)) << status;
  });
}

// Four processes on two hosts sum back to back. Rank 3 gets `signal` in the middle of that. The
// others name it within the timeout.
void CheckLostRank(int signal) {
  FileStore store;
  const std::string token = NewToken();
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      auto made = MakeTrainersGroup({.store = &store,
                                     .token = token,
                                     .name = "world",
                                     .rank = rank,
                                     .timeout = absl::Seconds(2),
                                     .hosts = {"a", "a", "b", "b"},
                                     .listen = "127.0.0.1:0"},
                                    Soon());
      if (!made.ok()) _exit(9);
      std::vector<float> values(3000000, 1);
      const absl::Time start = absl::Now();
      for (int round = 0; round < 100000; ++round) {
        const absl::Status status =
            made->group->AllReduce(DenseView(values.data(), {3000000}), Args(ReduceOp::MAX))
                .Wait(Soon());
        if (status.ok()) continue;
        if (absl::Now() - start > absl::Seconds(20)) _exit(3);
        const bool named = absl::StrContains(std::string(status.message()), "trainer-3 (b)");
        if (!named) std::fprintf(stderr, "%s\n", status.ToString().c_str());
        _exit(named ? 0 : 1);
      }
      _exit(2);
    }
    children.push_back(child);
  }
  absl::SleepFor(absl::Seconds(2));
  kill(children[3], signal);
  std::vector<int> statuses(4);
  for (int rank = 0; rank < 3; ++rank) waitpid(children[rank], &statuses[rank], 0);
  kill(children[3], SIGKILL);
  waitpid(children[3], &statuses[3], 0);
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0, SIGKILL}));
}

TEST(TwoLevelsTest, SurvivorsOfAKilledRankNameItAndItsHost) { CheckLostRank(SIGKILL); }
TEST(TwoLevelsTest, SurvivorsOfAStoppedRankNameItAndItsHost) { CheckLostRank(SIGSTOP); }

}  // namespace
}  // namespace tandem::comm
