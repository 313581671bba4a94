// Stored weights: how near they are to the originals. Random rounding keeps the mean and depends
// only on its key.
// Bits do not depend on the instruction set.
#include "ps/wire/row_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/wire/rounding_bits.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

std::vector<float> Stored(RowStorage storage, const std::vector<float>& weights, uint64_t step) {
  const uint32_t dim = static_cast<uint32_t>(weights.size());
  std::vector<char> bytes(StoredBytes(storage, dim) + 1, 0x5a);
  EncodeStochastic(storage, weights.data(), dim, {3, 4}, step, bytes.data());
  EXPECT_EQ(bytes.back(), 0x5a);
  std::vector<float> decoded(dim);
  DecodeWeights(storage, bytes.data(), dim, decoded.data());
  return decoded;
}

TEST(RowCodecTest, RoundTripsWithinAUnit) {
  for (uint32_t dim : {1u, 3u, 16u, 65u, 1500u}) {
    const auto weights = MakeValues(dim, dim);
    float largest = 0;
    for (float w : weights) largest = std::max(largest, std::fabs(w));
    EXPECT_EQ(Stored(STORED_F32, weights, 1), weights);
    const auto halves = Stored(STORED_BF16, weights, 1), bytes = Stored(STORED_INT8, weights, 1);
    std::vector<char> near(StoredBytes(STORED_INT8, dim));
    std::vector<float> nearest(dim);
    EncodeNearest(STORED_INT8, weights.data(), dim, near.data());
    DecodeWeights(STORED_INT8, near.data(), dim, nearest.data());
    for (uint32_t i = 0; i < dim; ++i) {
      EXPECT_LE(std::fabs(halves[i] - weights[i]), std::fabs(weights[i]) * 0x1p-7f) << i;
      EXPECT_LE(std::fabs(bytes[i] - weights[i]), largest / 127 * 1.0001f) << i;
      EXPECT_LE(std::fabs(nearest[i] - weights[i]), largest / 254 * 1.0001f) << i;
    }
  }
}

TEST(RowCodecTest, RoundingAtRandomKeepsTheMean) {
  std::vector<float> weights(64);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = 1 + static_cast<float>(i) / 8192;  // between two units of bf16
  for (RowStorage storage : {STORED_BF16, STORED_INT8}) {
    std::vector<double> mean(64);
    constexpr int kSteps = 4000;
    for (int step = 1; step <= kSteps; ++step) {
      const auto stored = Stored(storage, weights, static_cast<uint64_t>(step));
      for (size_t i = 0; i < 64; ++i) mean[i] += double{stored[i]} / kSteps;
    }
    // A unit is 1/128 or 1/127. The mean deviates by at most half a unit over sqrt(4000); the test
    // allows five deviations.
    for (size_t i = 0; i < 64; ++i)
      EXPECT_NEAR(mean[i], weights[i], 5 * 0.5 / 127 / std::sqrt(4000)) << i;
  }
}

TEST(RowCodecTest, TheRandomBitsAreAFunctionOfKeyStepAndColumn) {
  const auto weights = MakeValues(1, 700);
  for (RowStorage storage : {STORED_BF16, STORED_INT8}) {
    EXPECT_EQ(Stored(storage, weights, 5), Stored(storage, weights, 5));
    EXPECT_NE(Stored(storage, weights, 5), Stored(storage, weights, 6));
    const kernels::InstructionSetLimit limit(kernels::InstructionSet::BASELINE);
    const auto plain = Stored(storage, weights, 5);
    const kernels::InstructionSetLimit wider(kernels::InstructionSet::AMX);
    EXPECT_EQ(plain, Stored(storage, weights, 5));
  }
  // Column 3 has the same bits in a shorter row.
  std::vector<float> same(700, 1.003f), shorter(9, 1.003f);
  const auto longer = Stored(STORED_BF16, same, 5);
  const auto cut = Stored(STORED_BF16, shorter, 5);
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), longer.begin()));
}

TEST(RowCodecTest, RoundingBitsAreThoseOfPhilox) {
  const uint64_t key = FoldKey({3, 4}), step = 0x123456789abcdef0;
  for (uint32_t first : {0u, 8u, 512u}) {
    for (uint32_t count : {1u, 8u, 63u, 64u, 65u, 500u}) {
      for (const auto widest : {kernels::InstructionSet::BASELINE, kernels::InstructionSet::AVX2,
                                kernels::InstructionSet::AMX}) {
        const kernels::InstructionSetLimit limit(widest);
        std::vector<uint16_t> bits(512);
        kernels::Vectorised([=, to = bits.data()](auto set) {
          RoundingBits<decltype(set)::value>(key, step, first, count, to);
        });
        for (uint32_t i = 0; i < count; ++i) {
          const uint32_t column = first + i;
          EXPECT_EQ(bits[i], DropoutBits({3, 4}, step, column))
              << column;  // eight of a block, in this order
        }
      }
    }
  }
}

TEST(RowCodecTest, ExtremesStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto halves =
      Stored(STORED_BF16, {0.0f, -0.0f, infinity, -infinity, std::nanf(""), 1e-40f}, 1);
  EXPECT_EQ(halves[0], 0);
  EXPECT_EQ(halves[2], infinity);
  EXPECT_EQ(halves[3], -infinity);
  EXPECT_TRUE(std::isnan(halves[4]));
  for (float w : Stored(STORED_INT8, {0.0f, 0.0f, 0.0f}, 1)) EXPECT_EQ(w, 0);
  for (float w : Stored(STORED_INT8, {1.0f, std::nanf(""), 2.0f}, 1)) EXPECT_TRUE(std::isnan(w));
  const auto bytes = Stored(STORED_INT8, {-3.0f, 3.0f, 1.5f}, 1);
  EXPECT_FLOAT_EQ(bytes[0], -3);
  EXPECT_FLOAT_EQ(bytes[1], 3);
}

TEST(RowCodecTest, EveryStoredBitIsVisited) {
  for (RowStorage storage : {STORED_F32, STORED_BF16, STORED_INT8}) {
    const auto weights = MakeValues(1, 5);
    std::vector<char> bytes(StoredBytes(storage, 5));
    EncodeNearest(storage, weights.data(), 5, bytes.data());
    const auto digest = [&] {
      uint64_t sum = 0;
      uint32_t columns = 0;
      ForEachStored(storage, bytes.data(), 5, [&](uint32_t column, uint32_t bits) {
        EXPECT_EQ(column, columns++);
        sum += Fmix64(uint64_t{column} << 32 | bits);
      });
      EXPECT_EQ(columns, storage == STORED_INT8 ? 6u : 5u);
      return sum;
    };
    const uint64_t before = digest();
    const size_t padding_begin = storage == STORED_INT8 ? 5 : bytes.size(),
                 padding_end = storage == STORED_INT8 ? 8 : bytes.size();
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i >= padding_begin && i < padding_end) continue;
      bytes[i] = static_cast<char>(bytes[i] ^ 1);
      EXPECT_NE(digest(), before) << i;
      bytes[i] = static_cast<char>(bytes[i] ^ 1);
    }
  }
}

}  // namespace
}  // namespace tandem::ps
