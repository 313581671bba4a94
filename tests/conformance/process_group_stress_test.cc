// Runs many random collectives back to back without waiting in between. Both groups end with the
// same bits.
#include <algorithm>
#include <cstring>

#include "kernels/base/random.h"
#include "tests/conformance/group_harness.h"

namespace tandem::comm {
namespace {

constexpr int kOperations = 1200, kInFlight = 12;

// All ranks derive the same operation from its number.
Work LaunchOne(ProcessGroup& group, uint64_t number, float* values, std::vector<float>& gathered) {
  const RandomKey key{11, number};
  auto random = [&](uint64_t element, int64_t n) {
    return static_cast<int64_t>(RandomBelow(key, 0, element, n));
  };
  const int64_t limit = random(0, 20) == 0 ? 700000 : random(0, 3) == 0 ? 40000 : 300;
  const int64_t count = random(1, limit);
  const CollectiveArgs args = Args(ReduceOp::MAX, SumOrder::ANY, number);
  switch (random(2, 5)) {
    case 0:
      return group.Broadcast(DenseView(values, {count}), static_cast<int>(random(3, group.size())),
                             args);
    case 1:
      return group.AllGather(DenseView(gathered.data(), {count * group.size()}),
                             DenseView(values, {count}), args);
    case 2:
      return group.Barrier(args);
    default: {
      const ReduceOp op = random(4, 4) == 0   ? ReduceOp::SUM
                          : random(4, 4) == 1 ? ReduceOp::MIN
                                              : ReduceOp::MAX;
      const SumOrder order = random(5, 2) ? SumOrder::ANY : SumOrder::TREE;
      return group.AllReduce(DenseView(values, {count}), Args(op, order, number));
    }
  }
}

std::vector<std::vector<float>> RunProgram(Kind kind, int size) {
  std::vector<std::vector<float>> results(size);
  RunRanks(
      kind, size,
      [&](ProcessGroup& group) {
        constexpr int64_t kElements = 700000;
        std::vector<float> values(kElements), gathered(kElements * size);
        const auto buffer = group.Allocate(kElements * sizeof(float));
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        auto* const allocated = static_cast<float*>((*buffer)->data());
        std::fill(allocated, allocated + kElements, 0.0f);
        for (int i = 0; i < kOperations; i += kInFlight) {
          // Batches alternate between private arrays and arrays that the group reduces in place.
          float* const array = i / kInFlight % 2 == 0 ? values.data() : allocated;
          // Fresh numbers each time keep sums from growing without limit.
          const RandomKey key{3, static_cast<uint64_t>(group.rank())};
          for (int64_t e = 0; e < kElements; e += 1 + e % 3)
            array[e] = UnitFloat(RandomBits(key, i, e)) - 0.5f;
          std::vector<Work> works;
          for (int k = 0; k < kInFlight; ++k)
            works.push_back(LaunchOne(group, i + k, array, gathered));
          for (const Work& work : works) ASSERT_TRUE(work.Wait(Soon()).ok());
        }
        std::vector<float>& result = results[group.rank()];
        result = values;
        result.insert(result.end(), allocated, allocated + kElements);
        result.insert(result.end(), gathered.begin(), gathered.end());
      },
      absl::Seconds(30));
  return results;
}

class ProcessGroupStressTest : public testing::TestWithParam<int> {};

TEST_P(ProcessGroupStressTest, RandomProgramsGiveTheSameBitsInBothGroups) {
  const auto threads = RunProgram(Kind::THREAD, GetParam()),
             shared = RunProgram(Kind::SHARED_MEMORY, GetParam());
  for (int r = 0; r < GetParam(); ++r) {
    ASSERT_EQ(threads[r].size(), shared[r].size());
    EXPECT_EQ(std::memcmp(threads[r].data(), shared[r].data(), threads[r].size() * sizeof(float)),
              0)
        << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ProcessGroupStressTest, testing::Values(2, 3, 7));

TEST(GroupLifetimeStressTest, GroupsAreMadeAndDroppedManyTimes) {
  for (int round = 0; round < 100; ++round) {
    RunRanks(
        round % 2 ? Kind::THREAD : Kind::SHARED_MEMORY, 1 + round % 4, [](ProcessGroup& group) {
          std::vector<float> values(100, 1);
          ASSERT_TRUE(group.AllReduce(DenseView(values.data(), {100}), Args()).Wait(Soon()).ok());
          EXPECT_EQ(values[99], group.size());
        });
  }
}

}  // namespace
}  // namespace tandem::comm
