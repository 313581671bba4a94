// The data room on real input: Last.FM as prepared for S3-Rec, whose floors without learning are
// published.
#include <gtest/gtest.h>
#include <string>

#include "tests/trainer/data/real_data.h"
#include "trainer/data/floors.h"
#include "trainer/data/interactions.h"
#include "trainer/data/sequence_sampler.h"

namespace tandem::data {
namespace {

class LastFmTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = RealDataFile("lastfm/LastFM.txt");
    if (path.empty())
      GTEST_SKIP() << "no lastfm/LastFM.txt below " << RealDataRoot() << " (set TANDEM_TEST_DATA)";
    auto log = ReadSequences(path, 0);
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
    auto negatives = ReadNegatives(RealDataFile("lastfm/LastFM_sample.txt"), log_);
    ASSERT_TRUE(negatives.ok()) << negatives.status();
    negatives_ = std::move(negatives->lists);
  }

  void ExpectFloor(const FloorRanks& floor, double sampled_hr, double sampled_ndcg, double full_hr,
                   double full_ndcg) {
    EXPECT_NEAR(SummariseExpected(floor.sampled).hr10, sampled_hr, 5e-5);
    EXPECT_NEAR(SummariseExpected(floor.sampled).ndcg10, sampled_ndcg, 5e-5);
    EXPECT_NEAR(Summarise(floor.full).hr10, full_hr, 5e-5);
    EXPECT_NEAR(Summarise(floor.full).ndcg10, full_ndcg, 5e-5);
  }

  Interactions log_;
  Jagged negatives_;
};

TEST_F(LastFmTest, CountsAreThePublishedOnes) {
  EXPECT_EQ(log_.users.size(), 1090u);
  EXPECT_EQ(log_.num_items, 3646u);
  ASSERT_EQ(negatives_.size(), 1090);
  for (int64_t u = 0; u < negatives_.size(); ++u) EXPECT_EQ(negatives_.row_size(u), 99);
}

TEST_F(LastFmTest, AnEpochHasFiveBatchesAndTheLastHas66Users) {
  const SequenceSampler sampler(&log_, {.seed = 1, .batch_size = 256, .max_length = 50});
  EXPECT_EQ(sampler.num_eval_users(), 1090);
  ASSERT_EQ(sampler.steps_per_epoch(), 5);
  EXPECT_EQ(sampler.TrainBatch(0, 4, 0, 1).global_samples, 66);
}

TEST_F(LastFmTest, PopularityFloorIsThePublishedOne) {
  ExpectFloor(PopularityRanks(log_, &negatives_), .2919, .1619, .0385, .0180);
}

TEST_F(LastFmTest, TransitionFloorIsThePublishedOne) {
  ExpectFloor(TransitionRanks(log_, &negatives_), .3149, .1805, .0422, .0235);
}

}  // namespace
}  // namespace tandem::data
