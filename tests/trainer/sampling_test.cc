#include "trainer/models/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::models {
namespace {

constexpr RandomKey kKey{3, StableHash("sampling")};

// Probabilities .4 .3 .2 .1, best last.
std::vector<float> FourScores() {
  std::vector<float> scores;
  for (const double p : {0.1, 0.2, 0.3, 0.4}) scores.push_back(static_cast<float>(std::log(p) + 7));
  return scores;
}

std::vector<double> Frequencies(const std::vector<float>& scores, const SamplingOptions& options) {
  constexpr int kDraws = 40000;
  std::vector<double> shares(scores.size(), 0);
  for (uint64_t step = 0; step < kDraws; ++step) shares[SampleSymbol(scores, options, kKey, step)] += 1.0 / kDraws;
  return shares;
}

void ExpectFrequencies(const SamplingOptions& options, const std::vector<double>& expected) {
  const std::vector<double> shares = Frequencies(FourScores(), options);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(shares[i], expected[i], expected[i] == 0 ? 0 : 0.01) << "symbol " << i;  // sd at most 0.0025
  }
}

TEST(SamplingTest, FrequenciesAreTheSoftmax) { ExpectFrequencies({}, {.1, .2, .3, .4}); }

TEST(SamplingTest, TemperatureIsAPowerOfTheProbabilities) {
  const double half = .01 + .04 + .09 + .16, twice = std::sqrt(.1) + std::sqrt(.2) + std::sqrt(.3) + std::sqrt(.4);
  ExpectFrequencies({.temperature = 0.5}, {.01 / half, .04 / half, .09 / half, .16 / half});
  ExpectFrequencies({.temperature = 2},
                    {std::sqrt(.1) / twice, std::sqrt(.2) / twice, std::sqrt(.3) / twice, std::sqrt(.4) / twice});
}

TEST(SamplingTest, TopKKeepsTheBest) {
  ExpectFrequencies({.top_k = 2}, {0, 0, 3.0 / 7, 4.0 / 7});
  ExpectFrequencies({.top_k = 1}, {0, 0, 0, 1});
  ExpectFrequencies({.top_k = 99}, {.1, .2, .3, .4});
}

TEST(SamplingTest, TopPKeepsTheFewestThatReachIt) {
  ExpectFrequencies({.top_p = 0.39}, {0, 0, 0, 1});
  ExpectFrequencies({.top_p = 0.41}, {0, 0, 3.0 / 7, 4.0 / 7});
  ExpectFrequencies({.top_p = 0.69}, {0, 0, 3.0 / 7, 4.0 / 7});
  ExpectFrequencies({.top_p = 0.71}, {0, 2.0 / 9, 3.0 / 9, 4.0 / 9});
  ExpectFrequencies({.top_p = 1e-9}, {0, 0, 0, 1});
}

TEST(SamplingTest, TopPIsOfWhatTopKLeaves) {
  ExpectFrequencies({.top_k = 2, .top_p = 0.56}, {0, 0, 0, 1});  // 4/7 = .571
  ExpectFrequencies({.top_k = 3, .top_p = 0.56}, {0, 0, 3.0 / 7, 4.0 / 7});
}

TEST(SamplingTest, TemperatureZeroIsGreedyAndTheFirstOfEqualsWins) {
  EXPECT_EQ(SampleSymbol({1, 5, 2, 5}, {.temperature = 0}, kKey, 1), 1);
  EXPECT_EQ(SampleSymbol({1, 5, 2, 5}, {.temperature = 1e-30}, {.seed = 1}, 1),
            SampleSymbol({-9, 5, -9, 5}, {}, {.seed = 1}, 1));
}

TEST(SamplingTest, TheSameSeedAndStepGiveTheSameSymbol) {
  const std::vector<float> scores(50, 0);
  const auto text = [&](uint64_t seed) {
    std::vector<int64_t> symbols;
    for (uint64_t step = 0; step < 20; ++step) symbols.push_back(SampleSymbol(scores, {}, {seed, 4}, step));
    return symbols;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(SamplingTest, ScoresWithoutNumbersAreNotDrawn) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<double> shares = Frequencies({nan, 0, -infinity, 0, nan}, {});
  EXPECT_EQ(shares[0] + shares[2] + shares[4], 0);
  EXPECT_NEAR(shares[1], 0.5, 0.01);
  EXPECT_EQ(SampleSymbol({0, infinity, 3}, {}, kKey, 1), 1);
  EXPECT_EQ(SampleSymbol({nan, nan}, {}, kKey, 1), 0);
}

}  // namespace
}  // namespace tandem::models
