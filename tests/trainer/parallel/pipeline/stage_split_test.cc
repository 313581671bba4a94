// Layers cut into stages.
#include "trainer/parallel/pipeline/stage_split.h"

#include <gtest/gtest.h>
#include <numeric>

#include "kernels/base/random.h"

namespace tandem::parallel {
namespace {

std::vector<double> Alike(int num_layers) {
  return std::vector<double>(static_cast<size_t>(num_layers), 1);
}

TEST(StageSplitTest, EqualLayersGoToStagesEvenly) {
  EXPECT_EQ(SplitLayers({Alike(8)}, 1), (std::vector<int>{8}));
  EXPECT_EQ(SplitLayers({Alike(8)}, 4), (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(SplitLayers({Alike(4)}, 4), (std::vector<int>{1, 1, 1, 1}));
  const std::vector<int> uneven = SplitLayers({Alike(7)}, 3);
  EXPECT_EQ(*std::max_element(uneven.begin(), uneven.end()), 3);
  EXPECT_EQ(*std::min_element(uneven.begin(), uneven.end()), 2);
}

TEST(StageSplitTest, EmbeddingAndHeadCountForTheStagesThatHaveThem) {
  EXPECT_EQ(SplitLayers({Alike(8), 0, 2}, 2), (std::vector<int>{5, 3}));
  EXPECT_EQ(SplitLayers({Alike(12), 1, 3}, 4), (std::vector<int>{3, 4, 4, 1}));
  // A head that costs more than all layers: the others share the rest.
  EXPECT_EQ(SplitLayers({Alike(5), 0, 100}, 3), (std::vector<int>{2, 2, 1}));
}

TEST(StageSplitTest, NoCutHasACheaperCostliestStage) {
  for (uint64_t number = 0; number < 200; ++number) {
    const RandomKey key{3, number};
    const int num_layers = 1 + static_cast<int>(RandomBelow(key, 0, 0, 9)),
              num_stages = 1 + static_cast<int>(RandomBelow(key, 0, 1, num_layers));
    LayersWork work;
    for (int i = 0; i < num_layers; ++i)
      work.layers.push_back(1 + static_cast<double>(RandomBelow(key, 1, i, 5)));
    work.before_first = static_cast<double>(RandomBelow(key, 2, 0, 6));
    work.after_last = static_cast<double>(RandomBelow(key, 2, 1, 6));
    const auto costliest = [&](const std::vector<int>& layers) {
      double worst = 0;
      int at = 0;
      for (int stage = 0; stage < num_stages; ++stage) {
        double cost =
            (stage == 0 ? work.before_first : 0) + (stage == num_stages - 1 ? work.after_last : 0);
        for (int i = 0; i < layers[stage]; ++i) cost += work.layers[at++];
        worst = std::max(worst, cost);
      }
      return worst;
    };
    const std::vector<int> found = SplitLayers(work, num_stages);
    EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), num_layers);
    // All cuts: the places of the borders between layers.
    double best = 1e9;
    for (int mask = 0; mask < 1 << (num_layers - 1); ++mask) {
      if (__builtin_popcount(static_cast<unsigned>(mask)) != num_stages - 1) continue;
      std::vector<int> layers{1};
      for (int i = 0; i + 1 < num_layers; ++i) {
        if (mask >> i & 1)
          layers.push_back(1);
        else
          ++layers.back();
      }
      best = std::min(best, costliest(layers));
    }
    EXPECT_EQ(costliest(found), best) << number;
  }
}

}  // namespace
}  // namespace tandem::parallel
