#include "trainer/data/ranking.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace tandem::data {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(RankOfTest, CountsHigherItemsAndHalfTheTies) {
  const std::vector<float> scores = {99, 1, 5, 3, 3, 3, 0};
  EXPECT_EQ(RankOf(scores, 2, {}), 1.0);
  EXPECT_EQ(RankOf(scores, 3, {}), 1 + 1 + 0.5 * 2);
  EXPECT_EQ(RankOf(scores, 6, {}), 6.0);
}

TEST(RankOfTest, PaddingAndSeenItemsAreNoCandidates) {
  const std::vector<float> scores = {9, 1, 5, 3, 3, 4};
  EXPECT_EQ(RankOf(scores, 1, {}), 5.0);
  EXPECT_EQ(RankOf(scores, 1, {2, 5}), 3.0);
  EXPECT_EQ(RankOf(scores, 3, {4}), 3.0);
}

TEST(RankOfTest, SeenMayRepeatHoldTheTargetPaddingAndForeignIds) {
  const std::vector<float> scores = {9, 1, 5, 3};
  EXPECT_EQ(RankOf(scores, 1, {2, 2, 2, 1, 0, 1000}), 2.0);
}

TEST(RankOfTest, AllEqualScoresRankInTheMiddle) {
  EXPECT_EQ(RankOf(std::vector<float>(101, 0.25f), 40, {}), 1 + 99 / 2.0);
}

TEST(RankOfTest, NanNeverLooksGood) {
  EXPECT_EQ(RankOf({0, 1, kNan, 2}, 3, {}), 2.0);
  EXPECT_EQ(RankOf({0, 1, kNan, 2}, 3, {2}), 1.0);
  EXPECT_EQ(RankOf({0, 1, kNan, 2}, 2, {}), 3.0);
  EXPECT_EQ(RankOf({0, kNan, kNan, kNan, kNan}, 2, {}), 4.0);
}

TEST(RankOfTest, InfiniteScoresAreOrdinary) {
  EXPECT_EQ(RankOf({0, -kInfinity, kInfinity, 0}, 3, {}), 2.0);
  EXPECT_EQ(RankOf({0, -kInfinity, -kInfinity, 0}, 1, {}), 2.5);
}

TEST(RankOfTest, OneItemCatalogueRanksFirst) { EXPECT_EQ(RankOf({0, 0}, 1, {}), 1.0); }

TEST(RankAmongTest, TargetIsNotAmongTheOthers) {
  EXPECT_EQ(RankAmong(2, {1, 2, 3, 2}), 1 + 1 + 0.5 * 2);
  EXPECT_EQ(RankAmong(2, {}), 1.0);
  EXPECT_EQ(RankAmong(kNan, {1, 2}), 3.0);
  EXPECT_EQ(RankAmong(1, {kNan, 0}), 2.0);
}

TEST(SummariseTest, MeansOverAllUsers) {
  const RankingMetrics metrics = Summarise({1.0, 3.0, 10.0, 10.5, 20.0, 21.0});
  EXPECT_DOUBLE_EQ(metrics.hr1, 1 / 6.0);
  EXPECT_DOUBLE_EQ(metrics.hr5, 2 / 6.0);
  EXPECT_DOUBLE_EQ(metrics.hr10, 3 / 6.0);
  EXPECT_DOUBLE_EQ(metrics.hr20, 5 / 6.0);
  EXPECT_DOUBLE_EQ(metrics.ndcg5, (1 + 0.5) / 6);
  EXPECT_DOUBLE_EQ(metrics.ndcg10, (1 + 0.5 + 1 / std::log2(11)) / 6);
  EXPECT_DOUBLE_EQ(metrics.ndcg20,
                   (1 + 0.5 + 1 / std::log2(11) + 1 / std::log2(11.5) + 1 / std::log2(21)) / 6);
  EXPECT_DOUBLE_EQ(metrics.mrr, (1 + 1 / 3.0 + 0.1 + 1 / 10.5 + 1 / 20.0 + 1 / 21.0) / 6);
}

TEST(SummariseTest, NoUsersGiveZeroAndPerfectRanksExactlyOne) {
  EXPECT_EQ(Summarise(std::vector<double>()).mrr, 0.0);
  const RankingMetrics perfect = Summarise(std::vector<double>(1090, 1.0));
  EXPECT_EQ(perfect.hr1, 1.0);
  EXPECT_EQ(perfect.ndcg20, 1.0);
}

TEST(SummariseTest, TiesAreHalfOrExpected) {
  const std::vector<TiedRank> ranks = {{9, 1}};  // places 10 and 11
  EXPECT_EQ(Summarise(ranks).hr10, 0.0);
  EXPECT_EQ(SummariseExpected(ranks).hr10, 0.5);
  EXPECT_DOUBLE_EQ(SummariseExpected(ranks).mrr, (1 / 10.0 + 1 / 11.0) / 2);
  EXPECT_DOUBLE_EQ(Summarise(ranks).mrr, 1 / 10.5);
}

TEST(SummariseTest, ConstantModelHitsInProportionToK) {
  const std::vector<TiedRank> ranks(7, {0, 99});
  EXPECT_NEAR(SummariseExpected(ranks).hr10, 0.1, 1e-12);
}

TEST(TopIdsTest, OrderIsThatOfRanksTiesByIdWithoutPaddingAndSeen) {
  const float nan = std::nanf("");
  //                                id  0  1  2  3  4  5  6    7
  const std::vector<float> scores = {9, 3, 5, 5, 1, 8, nan, 2};
  EXPECT_EQ(TopIds(scores, 3, {{5, 99, 0}}, 20), (std::vector<uint64_t>{6, 2, 3, 1, 7, 4}));
  EXPECT_EQ(TopIds(scores, 3, {{5}}, 3), (std::vector<uint64_t>{6, 2, 3}));
  EXPECT_EQ(TopIds(scores, 5, {{5, 6}}, 2), (std::vector<uint64_t>{5, 2}))
      << "a target that was seen is ranked all the same";
  EXPECT_EQ(TopIds({}, 1, {}, 5), std::vector<uint64_t>{});
}

}  // namespace
}  // namespace tandem::data
