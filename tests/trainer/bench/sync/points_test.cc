#include "trainer/bench/sync/points.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

#include "trainer/bench/sync/probes.h"

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
    const std::vector<SyncPoint> points = SyncPoints({SyncPoint::TCP}, quick);
    std::set<std::string> names;
    for (size_t i = 0; i < points.size(); i += 2) {
      SyncPoint ring = points[i];
      EXPECT_EQ(ring.way(), SyncPoint::RING);
      ring.set_way(SyncPoint::SERVERS);
      EXPECT_EQ(ring.DebugString(), points[i + 1].DebugString());
      EXPECT_TRUE(names.insert(ring.DebugString()).second) << NameOf(ring) << " comes twice";
    }
  }
  EXPECT_LT(SyncPoints({}, true).size(), SyncPoints({}, false).size());
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
  const auto sum = [](uint64_t step) {
    return static_cast<double>(GradientOf(0, 5, 3, step) + GradientOf(1, 5, 3, step));
  };
  const double first = sum(1), second = sum(2);
  EXPECT_GT(first, 0);
  EXPECT_NE(first, second);
  const double one = -kSyncRate * first / (first + kSyncEpsilon),
               two = one - kSyncRate * second / (std::hypot(first, second) + kSyncEpsilon);
  EXPECT_NEAR(WeightAfter(all, 5, 3, 1), one, 1e-9);
  EXPECT_NEAR(WeightAfter(all, 5, 3, 2), two, 1e-9);
  // Without a trainer's gradient the weight is another one.
  SyncPoint alone = all;
  alone.set_trainers(1);
  EXPECT_GT(std::abs(WeightAfter(alone, 5, 3, 2) - two), 0.01 * std::abs(two));
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

TEST(SyncPointsTest, LinksAreNamesOrRates) {
  for (const auto& [text, rate] :
       {std::pair<std::string, double>("1gbit", 1e9), {"100mbit", 1e8}, {"2.5gbit", 2.5e9}}) {
    const auto link = LinkOf(text);
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_EQ(link->link, SyncPoint::CAPPED);
    EXPECT_DOUBLE_EQ(link->bits_per_second, rate);
    EXPECT_EQ(LinkText(SyncPoints(*link, true)[0]), text);
  }
  EXPECT_EQ(LinkOf("shm")->link, SyncPoint::SHM);
  EXPECT_EQ(LinkOf("tcp")->link, SyncPoint::TCP);
  for (const char* const text : {"", "fast", "gbit", "1", "-1gbit", "0mbit", "9999gbit", "nangbit"})
    EXPECT_EQ(LinkOf(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(ProbesTest, ProbesAreFewAndNoneIsAPointOfTheSweep) {
  const std::vector<ProbePoint> probes = ProbePoints(true, true);
  EXPECT_LE(probes.size(), static_cast<size_t>(kMaxProbes));
  EXPECT_LT(ProbePoints(false, false).size(), probes.size());
  std::set<std::string> sweep;
  for (const SyncLink& link :
       {SyncLink{SyncPoint::SHM}, {SyncPoint::TCP}, {SyncPoint::CAPPED, 1e9}}) {
    for (const SyncPoint& point : SyncPoints(link, false)) sweep.insert(NameOf(point));
  }
  for (const ProbePoint& probe : probes) {
    EXPECT_EQ(sweep.count(NameOf(probe.point)), 0u) << NameOf(probe.point);
    const Synchronisation what = WhatOf(probe.point);
    EXPECT_EQ(what.bytes_per_trainer, what.bytes);
    EXPECT_EQ(what.distinct_bytes, what.bytes);
  }
}

TEST(ProbesTest, TheModelSeesTheDistinctRowsOfTheTrainers) {
  const Synchronisation what = WhatOf(PointOf(0.5, PullPushCase::UNIFORM));
  EXPECT_EQ(what.bytes, 1 << 20);
  EXPECT_EQ(what.bytes_per_trainer, 1 << 19);
  // Two trainers with half of the rows each have three quarters of them together.
  EXPECT_NEAR(what.distinct_bytes, 0.75 * (1 << 20), 0.03 * (1 << 20));
}

}  // namespace
}  // namespace tandem::bench
