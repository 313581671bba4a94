#include "ps/caching/row_cache.h"

#include <set>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

TEST(RowCacheTest, RowIsFoundWhereItWasPutWithItsVersionAndValues) {
  RowCache cache(5000, 3);
  for (uint64_t id = 1; id <= 5000; ++id) {
    const uint32_t place = cache.Insert(id);
    ASSERT_NE(place, RowCache::kNone);
    cache.set_version(place, static_cast<uint32_t>(id));
    for (int i = 0; i < 3; ++i) cache.values(place)[i] = static_cast<float>(3 * id + i);
  }
  for (uint64_t id = 1; id <= 5000; ++id) {
    const uint32_t place = cache.Find(id);
    ASSERT_NE(place, RowCache::kNone);
    EXPECT_EQ(cache.id(place), id);
    EXPECT_EQ(cache.version(place), id);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cache.values(place)[i], static_cast<float>(3 * id + i));
  }
  EXPECT_EQ(cache.Find(5001), RowCache::kNone);
}

TEST(RowCacheTest, FullCacheNeverHasMoreRowsThanItsCapacity) {
  RowCache cache(100, 1);
  for (uint64_t id = 1; id <= 1000; ++id) {
    cache.Insert(id);
    EXPECT_EQ(cache.size(), std::min<uint64_t>(id, 100));
  }
}

TEST(RowCacheTest, RowsInUseStayWhileALongTailPassesThrough) {
  RowCache cache(100, 1);
  for (uint64_t id = 1; id <= 50; ++id) cache.Insert(id);
  for (uint64_t batch = 0; batch < 200; ++batch) {
    for (uint64_t id = 1; id <= 50; ++id) cache.CountUse(cache.Find(id));
    for (uint64_t i = 0; i < 40; ++i) cache.Insert(1000 + batch * 40 + i);
    for (uint64_t id = 1; id <= 50; ++id)
      ASSERT_NE(cache.Find(id), RowCache::kNone) << "batch " << batch;
  }
}

TEST(RowCacheTest, WhatWasHotOnceGivesWayInTheEnd) {
  RowCache cache(100, 1);
  for (uint64_t id = 1; id <= 100; ++id) {
    const uint32_t place = cache.Insert(id);
    for (int use = 0; use < 1000; ++use) cache.CountUse(place);
  }
  for (uint64_t id = 1000; id < 1200; ++id) cache.Insert(id);
  int left = 0;
  for (uint64_t id = 1; id <= 100; ++id) left += cache.Find(id) != RowCache::kNone;
  EXPECT_LT(left, 10);
}

TEST(RowCacheTest, PinnedRowsStayAndWithoutRoomANewRowStaysOut) {
  RowCache cache(3, 1);
  for (uint64_t id = 1; id <= 3; ++id) cache.Pin(cache.Insert(id), true);
  EXPECT_EQ(cache.Insert(4), RowCache::kNone);
  cache.Pin(cache.Find(2), false);
  EXPECT_NE(cache.Insert(4), RowCache::kNone);
  EXPECT_EQ(cache.Find(2), RowCache::kNone);
  for (uint64_t id : {1, 3, 4}) EXPECT_NE(cache.Find(id), RowCache::kNone);
}

TEST(RowCacheTest, ClearLeavesPinnedRowsOnly) {
  RowCache cache(3, 1);
  for (uint64_t id = 1; id <= 3; ++id) cache.Insert(id);
  cache.Pin(cache.Find(2), true);
  cache.Clear();
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_NE(cache.Find(2), RowCache::kNone);
  EXPECT_NE(cache.Insert(7), RowCache::kNone);
}

TEST(RowCacheTest, CacheOfNoRowsKeepsNone) {
  RowCache cache(0, 4);
  EXPECT_EQ(cache.Insert(1), RowCache::kNone);
  EXPECT_EQ(cache.Find(1), RowCache::kNone);
}

}  // namespace
}  // namespace tandem::ps
