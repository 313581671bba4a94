#include "trainer/models/sampling.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace tandem::models {
namespace {

constexpr RandomKey kKey{3, StableHash("sampling")};

// Probabilities .4 .3 .2 .1, best last.
std::vector<float> FourLogits() {
  std::vector<float> logits;
  for (const double p : {0.1, 0.2, 0.3, 0.4}) logits.push_back(static_cast<float>(std::log(p) + 7));
  return logits;
}

std::vector<double> Frequencies(const std::vector<float>& logits, const SamplingOptions& options) {
  constexpr int kDraws = 40000;
  std::vector<double> shares(logits.size(), 0);
  for (uint64_t step = 0; step < kDraws; ++step)
    shares[SampleToken(logits, options, kKey, step)] += 1.0 / kDraws;
  return shares;
}

void ExpectFrequencies(const SamplingOptions& options, const std::vector<double>& expected) {
  const std::vector<double> shares = Frequencies(FourLogits(), options);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(shares[i], expected[i], expected[i] == 0 ? 0 : 0.01)
        << "token " << i;  // sd at most 0.0025
  }
}

TEST(SamplingTest, FrequenciesAreTheSoftmax) { ExpectFrequencies({}, {.1, .2, .3, .4}); }

TEST(SamplingTest, TemperatureIsAPowerOfTheProbabilities) {
  const double half = .01 + .04 + .09 + .16,
               twice = std::sqrt(.1) + std::sqrt(.2) + std::sqrt(.3) + std::sqrt(.4);
  ExpectFrequencies({.temperature = 0.5}, {.01 / half, .04 / half, .09 / half, .16 / half});
  ExpectFrequencies({.temperature = 2}, {std::sqrt(.1) / twice, std::sqrt(.2) / twice,
                                         std::sqrt(.3) / twice, std::sqrt(.4) / twice});
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
  EXPECT_EQ(SampleToken({1, 5, 2, 5}, {.temperature = 0}, kKey, 1), 1);
  EXPECT_EQ(SampleToken({1, 5, 2, 5}, {.temperature = 1e-30}, {.seed = 1}, 1),
            SampleToken({-9, 5, -9, 5}, {}, {.seed = 1}, 1));
}

TEST(SamplingTest, TheSameSeedAndStepGiveTheSameToken) {
  const std::vector<float> logits(50, 0);
  const auto text = [&](uint64_t seed) {
    std::vector<int64_t> tokens;
    for (uint64_t step = 0; step < 20; ++step)
      tokens.push_back(SampleToken(logits, {}, {seed, 4}, step));
    return tokens;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(SamplingTest, LogitsWithoutNumbersAreNotDrawn) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<double> shares = Frequencies({nan, 0, -infinity, 0, nan}, {});
  EXPECT_EQ(shares[0] + shares[2] + shares[4], 0);
  EXPECT_NEAR(shares[1], 0.5, 0.01);
  EXPECT_EQ(SampleToken({0, infinity, 3}, {}, kKey, 1), 1);
  EXPECT_EQ(SampleToken({nan, nan}, {}, kKey, 1), 0);
}

}  // namespace
}  // namespace tandem::models
