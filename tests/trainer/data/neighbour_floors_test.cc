#include "trainer/data/neighbour_floors.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/trainer/data/real_data.h"

namespace tandem::data {
namespace {

Interactions LogOf(const std::vector<std::vector<uint64_t>>& users, uint64_t num_items) {
  Interactions log;
  log.num_items = num_items;
  for (const auto& items : users) {
    log.users.push_back(log.users.size() + 1);
    log.items.Append(items);
  }
  return log;
}

// Item 2 follows item 1 twice, item 3 once; item 4 comes too late after item 1, and item 5 only in
// parts that are not counted.
TEST(CooccurrenceTest, CountsWhatCameWithinTenItemsAfter) {
  const Interactions log = LogOf({{1, 2, 3, 9, 9},
                                  {1, 6, 6, 6, 6, 6, 6, 6, 6, 6, 2, 4, 9, 9},
                                  {7, 1, 5},
                                  {8, 1, 3},
                                  {7, 1, 2},
                                  {7, 1, 4}},
                                 9);
  const FloorRanks ranks = CooccurrenceRanks(log);
  ASSERT_EQ(ranks.full.size(), 6u);
  // After item 1: item 6 nine times, item 2 twice, item 3 once, in this order; 4, 5 tie with the
  // rest at zero.
  EXPECT_EQ(ranks.full[4].higher, 1) << "item 2";
  EXPECT_EQ(ranks.full[3].higher, 2) << "item 3";
  EXPECT_EQ(ranks.full[5].higher, 3) << "item 4 came eleven items after";
  EXPECT_EQ(ranks.full[5].ties, 3) << "items 5, 8 and 9";
  EXPECT_EQ(ranks.full[2].higher, 3) << "item 5";
}

Titles TitlesOf(std::vector<std::string> titles) {
  Titles found;
  found.of_item = std::move(titles);
  return found;
}

TEST(TitleRanksTest, RareSharedWordsMakeTitlesAlike) {
  const Titles titles =
      TitlesOf({"", "red mug", "RED Cup", "red plate", "blue mug", "blue pan", "red mug!"});
  const Interactions log = LogOf({{5, 1, 6}, {5, 1, 4}, {5, 1, 2}}, 6);
  const FloorRanks ranks = TitleRanks(log, titles);
  EXPECT_EQ(ranks.full[0].higher, 0) << "the same words";
  // Items 5 (blue pan) and 1 (red mug) were seen. Item 4 shares a word with each.
  EXPECT_EQ(ranks.full[1].higher, 1);
  EXPECT_GE(ranks.full[2].higher, 2);
}

TEST(TitleRanksTest, TitlesWithoutWordsAreLikeNothing) {
  const FloorRanks ranks = TitleRanks(LogOf({{1, 2, 3}}, 4), TitlesOf({"", "", "!", "red", ""}));
  EXPECT_EQ(ranks.full[0].higher, 0);
  EXPECT_EQ(ranks.full[0].ties, 1);
}

// The figures of this preparation, computed elsewhere.
TEST(NeighbourFloorsRealDataTest, OnlineRetailGivesTheKnownFigures) {
  const std::string path = RealDataFile("online-retail/sequences.txt");
  if (path.empty()) GTEST_SKIP() << "no real data";
  const auto log = ReadSequences(path, 3655);
  ASSERT_TRUE(log.ok()) << log.status();
  const auto titles = ReadTitles(RealDataFile("online-retail/items.tsv"), *log, nullptr);
  ASSERT_TRUE(titles.ok()) << titles.status();
  const RankingMetrics bought = Summarise(CooccurrenceRanks(*log).full),
                       alike = Summarise(TitleRanks(*log, *titles).full);
  EXPECT_NEAR(bought.hr10, 0.2237, 5e-4);
  EXPECT_NEAR(bought.ndcg10, 0.1332, 5e-4);
  // The preparation's own words and weights are not published; ours reach .1553 and .0867.
  EXPECT_NEAR(alike.hr10, 0.1536, 3e-3);
  EXPECT_NEAR(alike.ndcg10, 0.0851, 3e-3);
}

}  // namespace
}  // namespace tandem::data
