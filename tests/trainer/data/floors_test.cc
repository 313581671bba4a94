#include "trainer/data/floors.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <utility>
#include <vector>

#include "kernels/base/random.h"
#include "trainer/data/text/text_floors.h"

namespace tandem::data {
namespace {

// 60 users over 25 items, ids 26..30 never seen; repeats and short users included.
Interactions RandomLog() {
  Interactions log;
  log.num_items = 30;
  const RandomKey key{11, 0};
  uint64_t element = 0;
  for (uint64_t u = 0; u < 60; ++u) {
    std::vector<uint64_t> row(1 + RandomBelow(key, 0, element++, 12));
    for (uint64_t& item : row) {
      const uint64_t bound = 1 + RandomBelow(key, 1, element, 25);  // low ids are more popular
      item = 1 + RandomBelow(key, 0, element++, bound);
    }
    log.users.push_back(u);
    log.items.Append(row);
  }
  return log;
}

// scores[id] for the dense oracle: transition count * 1000 + popularity, both over items[:-2].
std::vector<float> DenseScores(const Interactions& log, uint64_t latest, float transition_weight) {
  std::vector<float> scores(log.num_items + 1, 0.0f);
  for (int64_t u = 0; u < log.items.size(); ++u) {
    const auto items = log.items.row(u);
    for (size_t i = 0; i + 2 < items.size(); ++i) {
      scores[items[i]] += 1;
      if (i > 0 && items[i - 1] == latest) scores[items[i]] += transition_weight;
    }
  }
  return scores;
}

void ExpectEqualsDenseOracle(const Interactions& log, const FloorRanks& floor,
                             const Jagged& negatives, float weight) {
  size_t next = 0;
  for (int64_t u = 0; u < log.items.size(); ++u) {
    const auto items = log.items.row(u);
    if (items.size() < 3) continue;
    const auto history = items.first(items.size() - 1);
    const std::vector<float> scores = DenseScores(log, history.back(), weight);
    const TiedRank full = TiedRankOf(scores, items.back(), history);
    EXPECT_EQ(floor.full[next].higher, full.higher) << "user " << u;
    EXPECT_EQ(floor.full[next].ties, full.ties) << "user " << u;
    std::vector<float> others;
    for (uint64_t id : negatives.row(u)) others.push_back(scores[id]);
    EXPECT_EQ(floor.sampled[next].Half(), RankAmong(scores[items.back()], others)) << "user " << u;
    ++next;
  }
  EXPECT_EQ(floor.full.size(), next);
  EXPECT_EQ(floor.sampled.size(), next);
}

Jagged RandomNegatives(const Interactions& log) {
  Jagged negatives;
  uint64_t element = 0;
  for (int64_t u = 0; u < log.items.size(); ++u) {
    std::vector<uint64_t> row(9);
    for (uint64_t& id : row) id = 1 + RandomBelow({12, 0}, 0, element++, log.num_items);
    negatives.Append(row);
  }
  return negatives;
}

TEST(FloorsTest, PopularityEqualsADenseCount) {
  const Interactions log = RandomLog();
  const Jagged negatives = RandomNegatives(log);
  ExpectEqualsDenseOracle(log, PopularityRanks(log, &negatives), negatives, 0);
}

TEST(FloorsTest, TransitionsEqualADenseCount) {
  const Interactions log = RandomLog();
  const Jagged negatives = RandomNegatives(log);
  ExpectEqualsDenseOracle(log, TransitionRanks(log, &negatives), negatives, 1000);
}

TEST(FloorsTest, HeldOutItemsAreNotCounted) {
  Interactions log;
  log.num_items = 4;
  log.users = {1};
  log.items.Append({1, 2, 3, 4});  // counted: 1 -> 2; candidates for 4 after 3: only 4
  EXPECT_EQ(PopularityRanks(log).full[0].Half(), 1.0);
  log.num_items = 6;  // 5 and 6 tie with 4: none has been counted
  EXPECT_EQ(PopularityRanks(log).full[0].Half(), 2.0);
  EXPECT_EQ(TransitionRanks(log).full[0].Half(), 2.0);
  EXPECT_TRUE(PopularityRanks(log).sampled.empty());
}

TEST(FloorsTest, VastCatalogueNeedsNoMemoryOfItsSize) {
  Interactions log;
  log.num_items = uint64_t{1} << 40;
  log.users = {1};
  log.items.Append({1, 2, 3, log.num_items});
  EXPECT_EQ(PopularityRanks(log).full[0].ties, static_cast<int64_t>(log.num_items) - 4);
}

TEST(FloorsTest, TextFloorsAreTheWrittenOutSums) {
  Text text;
  text.vocabulary = Vocabulary(U"abc");
  text.train = {0, 1, 0, 1, 0, 2};  // followers: a: b b c; b: a a; c: none
  text.valid = {0, 1, 2, 2};
  EXPECT_NEAR(UnigramLoss(text),
              -(std::log(3.0 / 6) + std::log(2.0 / 6) + 2 * std::log(1.0 / 6)) / 4, 1e-12);
  EXPECT_NEAR(BigramLoss(text), -(std::log(3.0 / 6) + std::log(1.0 / 5) + std::log(1.0 / 3)) / 3,
              1e-12);
}

}  // namespace
}  // namespace tandem::data
