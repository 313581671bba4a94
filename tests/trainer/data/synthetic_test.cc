#include "trainer/data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <set>

#include "tests/trainer/data/temp_file.h"
#include "trainer/data/floors.h"

namespace tandem::data {
namespace {

TEST(SyntheticTest, LogHasTheShapeThatWasAskedFor) {
  const SyntheticLog generated =
      Generate({.seed = 4, .users = 300, .items = 80, .min_length = 5, .max_length = 9});
  const Interactions& log = generated.log;
  ASSERT_EQ(log.users.size(), 300u);
  ASSERT_EQ(log.items.size(), 300);
  EXPECT_EQ(log.num_items, 80u);
  EXPECT_EQ(generated.best_ranks.size(), 300u);
  std::set<int64_t> lengths;
  for (int64_t u = 0; u < log.items.size(); ++u) {
    const auto row = log.items.row(u);
    lengths.insert(log.items.row_size(u));
    EXPECT_EQ(std::set<uint64_t>(row.begin(), row.end()).size(), row.size())
        << "user " << u << " repeats an item";
    for (uint64_t id : row) EXPECT_TRUE(1 <= id && id <= 80);
  }
  EXPECT_EQ(lengths, (std::set<int64_t>{5, 6, 7, 8, 9}));
}

TEST(SyntheticTest, SeedDecidesEverything) {
  const SyntheticOptions options{
      .seed = 4, .users = 50, .items = 80, .min_length = 5, .max_length = 9};
  SyntheticOptions other = options;
  other.seed = 5;
  EXPECT_EQ(Generate(options).log.items.values, Generate(options).log.items.values);
  EXPECT_NE(Generate(options).log.items.values, Generate(other).log.items.values);
}

TEST(SyntheticTest, MoreUsersKeepTheFirstOnes) {
  SyntheticOptions options{.seed = 4, .users = 50, .items = 80, .min_length = 5, .max_length = 9};
  const auto few = Generate(options).log.items.values;
  options.users = 60;
  const auto many = Generate(options).log.items.values;
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(SyntheticTest, BestRankingScoresWhatWasComputed) {
  const int kUsers = 20000;
  const SyntheticLog generated =
      Generate({.seed = 9, .users = kUsers, .items = 200, .min_length = 4, .max_length = 12});
  const RankingMetrics observed = Summarise(generated.best_ranks);
  const auto error = [&](double p) { return 3 * std::sqrt(p * (1 - p) / kUsers); };
  EXPECT_NEAR(observed.hr1, generated.reachable.hr1, error(generated.reachable.hr1));
  EXPECT_NEAR(observed.hr10, generated.reachable.hr10, error(generated.reachable.hr10));
  EXPECT_NEAR(observed.hr20, generated.reachable.hr20, error(generated.reachable.hr20));
  EXPECT_NEAR(observed.ndcg10, generated.reachable.ndcg10,
              3 * 0.5 / std::sqrt(kUsers));  // a gain's sd is below 0.5
  EXPECT_NEAR(observed.mrr, generated.reachable.mrr, 3 * 0.5 / std::sqrt(kUsers));
}

TEST(SyntheticTest, ZipfAloneReachesItsHead) {
  // Without successors and nearly without history, the best ranking is Zipf's: 10 of 2,000 items
  // hold H(10) / H(2000).
  const SyntheticLog generated = Generate({.seed = 2,
                                           .users = 200,
                                           .items = 2000,
                                           .min_length = 3,
                                           .max_length = 3,
                                           .lag1 = 0,
                                           .lag2 = 0,
                                           .popularity = 1});
  double head = 0, all = 0;
  for (int rank = 1; rank <= 2000; ++rank) (rank <= 10 ? head : all) += 1.0 / rank;
  EXPECT_NEAR(generated.reachable.hr10, head / (head + all), 0.06);
  EXPECT_LT(generated.reachable.hr10,
            head / (head + all));  // two items of the head are often seen already
}

TEST(SyntheticTest, FloorsLieWellBelowTheReachableScore) {
  const SyntheticLog generated = Generate({});
  const double popularity = Summarise(PopularityRanks(generated.log).full).hr10;
  const double transitions = Summarise(TransitionRanks(generated.log).full).hr10;
  std::printf(
      "HR@10: popularity %.4f, transitions %.4f, reachable %.4f; NDCG@10 transitions %.4f, "
      "reachable %.4f\n",
      popularity, transitions, generated.reachable.hr10,
      Summarise(TransitionRanks(generated.log).full).ndcg10, generated.reachable.ndcg10);
  EXPECT_LT(popularity + 0.1, transitions);
  EXPECT_LT(transitions + 0.15, generated.reachable.hr10);
}

TEST(SyntheticTest, WrittenLogReadsBackUnchanged) {
  const SyntheticLog generated =
      Generate({.seed = 4, .users = 40, .items = 80, .min_length = 5, .max_length = 9});
  const TempFile file("");
  ASSERT_TRUE(WriteSequences(generated.log, file.path()).ok());
  const auto read = ReadSequences(file.path(), 80);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->users, generated.log.users);
  EXPECT_EQ(read->items.offsets, generated.log.items.offsets);
  EXPECT_EQ(read->items.values, generated.log.items.values);
  EXPECT_EQ(read->num_items, 80u);
}

TEST(SyntheticTest, UnwritablePathIsAStatus) {
  const absl::Status status = WriteSequences(Interactions{}, "/nonexistent/log.txt");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

TEST(SyntheticTest, FullDiskIsAStatus) {
  const SyntheticLog generated =
      Generate({.seed = 4, .users = 40, .items = 80, .min_length = 5, .max_length = 9});
  EXPECT_FALSE(WriteSequences(generated.log, "/dev/full").ok());
}

}  // namespace
}  // namespace tandem::data
