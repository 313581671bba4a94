// Routing: the published test vectors, splits, and messages cut by size.
#include "ps/wire/router.h"

#include "gtest/gtest.h"
#include "ps/wire/message_cut.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

// ps/README.md publishes these vectors, with which a client in another language checks itself.
TEST(RouterTest, TestVectors) {
  EXPECT_EQ(rpc::VirtualShard(1, 1), 852u);
  EXPECT_EQ(rpc::VirtualShard(1, 123456789), 842u);
  EXPECT_EQ(rpc::VirtualShard(7, 0xffffffffffffffffULL), 269u);
}

TEST(RouterTest, SplitKeepsOrderAndPlaces) {
  const Router router = Router::RoundRobin(3);
  const auto ids = MakeIds(1, 200);
  const auto split = router.Split(2, "t", ids.data(), ids.size());
  ASSERT_TRUE(split.ok());
  ASSERT_EQ(split->size(), 3u);
  size_t total = 0;
  for (uint32_t owner = 0; owner < 3; ++owner) {
    const OwnedIds& part = (*split)[owner];
    EXPECT_GT(part.ids.size(), 30u);
    ASSERT_EQ(part.ids.size(), part.positions.size());
    for (size_t i = 0; i < part.ids.size(); ++i) {
      EXPECT_EQ(part.ids[i], ids[part.positions[i]]);
      EXPECT_EQ(rpc::VirtualShard(2, part.ids[i]) % 3, owner);
      if (i > 0) {
        EXPECT_LT(part.positions[i - 1], part.positions[i]);
      }
    }
    total += part.ids.size();
  }
  EXPECT_EQ(total, ids.size());
}

TEST(RouterTest, SplitAddsTheShardsThatItTouched) {
  const auto ids = MakeIds(1, 200);
  for (const int num_owners : {1, 3}) {
    ShardSet touched, expected;
    touched.set(rpc::VirtualShard(2, ids[0]) ^ 1);
    expected = touched;
    for (uint64_t id : ids) expected.set(rpc::VirtualShard(2, id));
    ASSERT_TRUE(
        Router::RoundRobin(num_owners).Split(2, "t", ids.data(), ids.size(), &touched).ok());
    EXPECT_EQ(touched, expected);
    EXPECT_GT(touched.count(), 150u);
  }
}

TEST(RouterTest, ASoleOwnerHasAllIdsWhereTheyWere) {
  const auto ids = MakeIds(1, 200);
  const auto split = Router::RoundRobin(1).Split(2, "t", ids.data(), ids.size());
  ASSERT_TRUE(split.ok());
  ASSERT_EQ(split->size(), 1u);
  EXPECT_EQ((*split)[0].ids, ids);
  EXPECT_TRUE((*split)[0].positions.empty());
}

// Repeated ids may lie far apart. Ids in between may collide with their hashes or not.
TEST(RouterTest, AnyRepeatedIdIsRefused) {
  for (const int num_owners : {1, 3}) {
    const Router router = Router::RoundRobin(num_owners);
    for (size_t count : {2, 3, 64, 1000}) {
      const auto distinct = MakeIds(1, count);
      EXPECT_TRUE(router.Split(2, "t", distinct.data(), count).ok());
      for (size_t first = 0; first < count; first += 1 + count / 16) {
        for (size_t second = first + 1; second < count; second += 1 + count / 16) {
          auto ids = distinct;
          ids[second] = ids[first];
          const absl::Status refused = router.Split(2, "t", ids.data(), count).status();
          EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << first << " " << second;
        }
      }
    }
  }
}

TEST(RouterTest, EveryShardIsInOneRangeOfItsOwner) {
  std::vector<uint16_t> owners(rpc::kNumVirtualShards);
  for (size_t shard = 0; shard < owners.size(); ++shard)
    owners[shard] = shard < 100 || shard == 1023 ? 1 : shard % 2 ? 2 : 0;
  const Router router(owners, 4);
  std::vector<int> seen(owners.size(), -1);
  for (int owner = 0; owner < 4; ++owner) {
    for (const ShardRange& range : router.ShardsOf(owner)) {
      for (uint32_t shard = range.first(); shard < range.first() + range.count(); ++shard) {
        EXPECT_EQ(seen[shard], -1);
        seen[shard] = owner;
      }
    }
  }
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), owners.begin()));
  EXPECT_EQ(router.ShardsOf(1).size(), 2u);
  EXPECT_TRUE(router.ShardsOf(3).empty());
  EXPECT_EQ(Router::RoundRobin(1).ShardsOf(0).size(), 1u);
}

TEST(RouterTest, ReadsIdsAtAnyAlignment) {
  const std::vector<uint64_t> ids = {11, 12, 13};
  std::string bytes(1 + 24, 'x');
  memcpy(bytes.data() + 1, ids.data(), 24);
  const auto split = Router::RoundRobin(1).Split(1, "t", bytes.data() + 1, 3);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ((*split)[0].ids, ids);
}

TEST(RouterTest, RefusesPaddingAndDuplicatesNamingTableAndId) {
  const Router router = Router::RoundRobin(2);
  for (const std::vector<uint64_t>& ids :
       {std::vector<uint64_t>{5, 0, 7}, std::vector<uint64_t>{5, 77, 9, 77}}) {
    const auto split = router.Split(1, "item", ids.data(), ids.size());
    EXPECT_TRUE(absl::IsInvalidArgument(split.status()));
    EXPECT_NE(split.status().message().find("item"), absl::string_view::npos);
  }
  const std::vector<uint64_t> twice = {77, 77};
  EXPECT_NE(router.Split(1, "item", twice.data(), 2).status().message().find("77"),
            absl::string_view::npos);
}

TEST(MessageCutTest, EveryIdGoesOnceInOrderAndMessagesStaySmall) {
  const auto ids = MakeIds(3, 300);
  const Router router = Router::RoundRobin(2);
  const std::vector<size_t> row_bytes = {16, 200};
  const std::vector<std::vector<OwnedIds>> split = {*router.Split(1, "a", ids.data(), 300),
                                                    *router.Split(2, "b", ids.data(), 100)};
  for (size_t max_bytes : {size_t{1}, size_t{208}, size_t{1000}, size_t{1} << 20}) {
    const auto messages = CutMessages(split, row_bytes, max_bytes);
    size_t next[2][2] = {}, bytes = 0;
    for (const CutMessage& message : messages) {
      size_t num_ids = 0, num_bytes = 0;
      for (const IdRange& range : message.ranges) {
        EXPECT_LT(range.begin, range.end);
        EXPECT_EQ(range.begin, next[range.segment][message.server]);
        next[range.segment][message.server] = range.end;
        num_ids += range.end - range.begin;
        num_bytes += (range.end - range.begin) * row_bytes[range.segment];
      }
      EXPECT_EQ(message.num_ids, num_ids);
      EXPECT_EQ(message.row_bytes, num_bytes);
      EXPECT_TRUE(num_ids == 1 || num_ids * 8 + num_bytes <= max_bytes);
      bytes += num_bytes;
    }
    EXPECT_EQ(bytes, 300u * 16 + 100 * 200);
    if (max_bytes == size_t{1} << 20) {
      EXPECT_EQ(messages.size(), 2u);
    }
  }
  EXPECT_TRUE(CutMessages({}, {}, 100).empty());
}

TEST(MessageCutTest, ACallALittleAboveTheLimitIsHalved) {
  const auto ids = MakeIds(1, 4096);
  const auto split = Router::RoundRobin(1).Split(1, "t", ids.data(), ids.size());
  ASSERT_TRUE(split.ok());
  const auto messages = CutMessages({*split}, {256}, size_t{1} << 20);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_NEAR(static_cast<double>(messages[0].num_ids), 2048, 1);
}

}  // namespace
}  // namespace tandem::ps
