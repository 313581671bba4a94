#include "trainer/bench/sync/points.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace tandem::bench {
namespace {

SyncPoint PointOf(double share, PullPushCase::Ids ids) {
  SyncPoint point;
  point.set_what(SyncPoint::TABLE);
  point.set_bytes(1 << 20);
  point.set_dim(64);
  point.set_share(share);
  point.set_ids(ids);
  point.set_trainers(2);
  point.set_servers(1);
  return point;
}

TEST(SyncPointsTest, EveryPointIsMeasuredInBothWaysSideBySide) {
  for (const bool quick : {true, false}) {
    const std::vector<SyncPoint> points = SyncPoints(quick);
    std::set<std::string> names;
    for (size_t i = 0; i < points.size(); i += 2) {
      SyncPoint ring = points[i];
      EXPECT_EQ(ring.way(), SyncPoint::RING);
      ring.set_way(SyncPoint::SERVERS);
      EXPECT_EQ(ring.DebugString(), points[i + 1].DebugString());
      EXPECT_TRUE(names.insert(ring.DebugString()).second) << NameOf(ring) << " comes twice";
    }
  }
  EXPECT_LT(SyncPoints(true).size(), SyncPoints(false).size());
}

TEST(SyncPointsTest, UniformIdsAreAsManyDistinctRowsAsTheShareSays) {
  for (const double share : {1e-4, 0.01, 0.5, 1.0}) {
    const SyncPoint point = PointOf(share, PullPushCase::UNIFORM);
    ASSERT_EQ(RowsOf(point), 4096u);
    for (uint64_t step = 1; step <= kSyncBatches; ++step) {
      const std::vector<uint64_t> ids = IdsOf(point, 1, step);
      EXPECT_EQ(ids.size(), std::max<size_t>(1, static_cast<size_t>(std::llround(share * 4096))));
      EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
      EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
      EXPECT_GE(ids.front(), 1u);
      EXPECT_LE(ids.back(), 4096u);
      EXPECT_EQ(ids, IdsOf(point, 1, step + kSyncBatches));
    }
  }
  const SyncPoint point = PointOf(0.01, PullPushCase::UNIFORM);
  EXPECT_NE(IdsOf(point, 0, 1), IdsOf(point, 1, 1));
  EXPECT_NE(IdsOf(point, 0, 1), IdsOf(point, 0, 2));
}

TEST(SyncPointsTest, ZipfIdsRepeatSoFewerRowsAreTouched) {
  const std::vector<uint64_t> ids = IdsOf(PointOf(0.5, PullPushCase::ZIPF), 0, 1);
  EXPECT_LT(ids.size(), 1500u);
  EXPECT_GT(ids.size(), 300u);
}

TEST(SyncPointsTest, WeightsFollowAdagradByHand) {
  const SyncPoint all = PointOf(1, PullPushCase::UNIFORM);
  const double gradient = GradientOf(0, 5, 3) + GradientOf(1, 5, 3);
  EXPECT_GT(gradient, 0);
  EXPECT_NEAR(WeightAfter(all, 5, 3, 1), -kSyncRate, 1e-9);
  EXPECT_NEAR(WeightAfter(all, 5, 3, 2), -kSyncRate * (1 + 1 / std::sqrt(2.0)), 1e-9);
  // A row that no step has touched stays where it was.
  const SyncPoint few = PointOf(1e-4, PullPushCase::UNIFORM);
  const std::vector<uint64_t> ids = IdsOf(few, 0, 1);
  uint64_t untouched = 1;
  for (bool touched = true; touched; ++untouched) {
    touched = false;
    for (uint32_t trainer = 0; trainer < 2; ++trainer) {
      for (uint64_t step = 1; step <= kSyncBatches; ++step)
        touched |= IdsOf(few, trainer, step).front() == untouched + 1;
    }
  }
  EXPECT_EQ(WeightAfter(few, untouched, 0, 8), 0);
  EXPECT_LT(WeightAfter(few, ids.front(), 0, 8), 0);
}

}  // namespace
}  // namespace tandem::bench
