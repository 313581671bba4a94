#include "rpc/master/shard_map.h"

#include <gtest/gtest.h>
#include <numeric>

namespace tandem::rpc {
namespace {

TEST(ShardMapTest, EvenRangesAreContiguousAndDifferByAtMostOne) {
  for (uint32_t num_ps : {1u, 2u, 3u, 4u, 7u, 1000u, 1024u}) {
    const ShardMap map = ShardMap::Even(num_ps);
    const auto runs = map.Runs();
    ASSERT_EQ(runs.size(), num_ps);
    uint32_t total = 0;
    for (uint32_t ps = 0; ps < num_ps; ++ps) {
      EXPECT_EQ(runs[ps].ps, ps);
      EXPECT_GE(runs[ps].num_shards, kNumVirtualShards / num_ps);
      EXPECT_LE(runs[ps].num_shards, (kNumVirtualShards + num_ps - 1) / num_ps);
      total += runs[ps].num_shards;
    }
    EXPECT_EQ(total, kNumVirtualShards);
  }
}

TEST(ShardMapTest, TravelsAsRuns) {
  for (uint32_t num_ps : {0u, 1u, 3u}) {
    const ShardMap map = ShardMap::Even(num_ps);
    const auto copy = ShardMap::FromRuns(5, num_ps, map.Runs());
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(copy->version(), 5u);
    EXPECT_EQ(copy->num_ps(), num_ps);
    for (uint32_t shard = 0; num_ps > 0 && shard < kNumVirtualShards; ++shard)
      EXPECT_EQ(copy->Owner(shard), map.Owner(shard));
  }
}

TEST(ShardMapTest, RunsThatDoNotCoverTheShardsAreRefused) {
  using Runs = std::vector<ShardMap::Run>;
  for (const Runs& runs :
       {Runs{}, Runs{{1023, 0}}, Runs{{1025, 0}}, Runs{{1000, 0}, {0xffffffffu, 1}},
        Runs{{1024, 2}}, Runs{{512, 0}, {513, 1}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ShardMap::FromRuns(1, 2, runs).status()));
  }
  EXPECT_FALSE(ShardMap::FromRuns(1, 0, {{1, 0}}).ok());
}

TEST(ShardMapTest, IdsSpreadOverTheShardsAndTablesDiffer) {
  std::vector<int> counts(kNumVirtualShards, 0);
  int same = 0;
  for (uint64_t id = 1; id <= 102400; ++id) {
    ++counts[VirtualShard(1, id)];
    same += VirtualShard(1, id) == VirtualShard(2, id);
  }
  for (int count : counts) {  // 100 expected, standard deviation 10
    EXPECT_GT(count, 40);
    EXPECT_LT(count, 170);
  }
  EXPECT_LT(same, 200);
}

}  // namespace
}  // namespace tandem::rpc
