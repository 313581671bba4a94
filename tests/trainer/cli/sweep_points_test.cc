#include "trainer/cli/sweep_points.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using Texts = std::vector<std::string>;

std::vector<std::string> NamesOf(const std::vector<SweepPoint>& points) {
  std::vector<std::string> names;
  for (const SweepPoint& point : points) names.push_back(point.name);
  return names;
}

TEST(SweepPointsTest, EveryCombinationComesWithEverySeed) {
  const auto points =
      SweepPoints({{"model.dropout", {"0", "0.3"}}, {"train.batch_size", {"64"}}}, {7, 8});
  EXPECT_EQ(NamesOf(points),
            Texts({"dropout=0,batch_size=64/seed-7", "dropout=0,batch_size=64/seed-8",
                   "dropout=0.3,batch_size=64/seed-7", "dropout=0.3,batch_size=64/seed-8"}));
  EXPECT_EQ(points[2].sets, Texts({"model.dropout=0.3", "train.batch_size=64", "seed=7"}));
  EXPECT_EQ(NamesOf(SweepPoints({}, {1, 2})), Texts({"seed-1", "seed-2"}));
  EXPECT_EQ(NamesOf(SweepPoints({{"model.dropout", {"0"}}}, {})), Texts({"dropout=0"}));
}

TEST(SweepPointsTest, AxesOfOneNameHaveTheirWholePath) {
  const auto points = SweepPoints({{"optimizer.learning_rate", {"1"}},
                                   {"tables[item].learning_rate", {"2"}},
                                   {"data.path", {"a/../b c"}}},
                                  {});
  EXPECT_EQ(NamesOf(points),
            Texts({"optimizer.learning_rate=1,tables[item].learning_rate=2,path=a_.._b_c"}));
}

TEST(SweepPointsTest, AnAxisHasAPathAndValues) {
  const auto axis = ParseGridAxis("data.path=a=b,c");
  ASSERT_TRUE(axis.ok());
  EXPECT_EQ(axis->path, "data.path");
  EXPECT_EQ(axis->values, Texts({"a=b", "c"}));
  for (const char* text : {"", "x", "x=", "=1", "x=1,", "x=,1", "seed=1,2"})
    EXPECT_EQ(ParseGridAxis(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(SweepPointsTest, SeedsAreOneOrARange) {
  EXPECT_EQ(*ParseSeeds("5"), std::vector<uint64_t>({5}));
  EXPECT_EQ(*ParseSeeds("1..3"), std::vector<uint64_t>({1, 2, 3}));
  EXPECT_EQ(ParseSeeds("18446744073709551614..18446744073709551615")->size(), 2u);
  EXPECT_EQ(ParseSeeds("1..1000")->size(), 1000u);
  for (const char* text :
       {"", "..", "1..", "..2", "3..1", "-1", "1...2", "1,2", "1..1001", "0..18446744073709551615"})
    EXPECT_EQ(ParseSeeds(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

}  // namespace
}  // namespace tandem::cli
