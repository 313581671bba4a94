// The pieces below a table: record layout, first weights, the index, fixed-point sums.
#include <cmath>
#include <cstring>
#include <map>

#include "gtest/gtest.h"
#include "ps/store/initializer.h"
#include "ps/wire/row_index.h"
#include "ps/wire/row_layout.h"
#include "ps/wire/saturating.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

TEST(RowLayoutTest, WeightsOfACacheLineStartOnOne) {
  for (RowStorage storage : {STORED_F32, STORED_BF16, STORED_INT8}) {
    for (uint32_t dim : {64, 67, 65536}) {
      for (size_t slot_values : {size_t{0}, size_t{1}, size_t{2} * dim}) {
        const RowLayout layout(dim, storage, slot_values);
        EXPECT_EQ(layout.weights_offset() % 64, 0u);
        EXPECT_EQ(layout.stride() % 64, 0u);
        EXPECT_EQ(layout.weight_bytes() % 4, 0u);
        EXPECT_GE(layout.stride(), layout.weights_offset() + layout.value_bytes());
        EXPECT_LT(layout.stride(), layout.field_bytes() + 64 + 64);
      }
    }
  }
  EXPECT_EQ(RowLayout(16, STORED_F32, 0).weights_offset(), 64u);
}

TEST(RowLayoutTest, NarrowRowsArePacked) {
  EXPECT_EQ(RowLayout(1, STORED_F32, 0).stride(),
            32u);  // 24 bytes of header, 4 of weights, to the next multiple of 8
  EXPECT_EQ(RowLayout(8, STORED_F32, 8).stride(), 24u + 64);
  // 24 bytes of header, 32 of weights and 4 of one slot fill a line.
  EXPECT_EQ(RowLayout(16, STORED_BF16, 1).stride(), 64u);
  EXPECT_EQ(RowLayout(16, STORED_BF16, 1).field_bytes(), 60u);
  EXPECT_EQ(RowLayout(16, STORED_INT8, 1).stride(), 24u + 16 + 4 + 4);
}

TEST(InitializerTest, DependsOnSeedIdAndColumnAlone) {
  float narrow[3], wide[9], other[9];
  InitializeWeights(5, 0.02f, 42, narrow, 3);
  InitializeWeights(5, 0.02f, 42, wide, 9);
  EXPECT_EQ(0, std::memcmp(narrow, wide, sizeof(narrow)));
  for (uint32_t column = 0; column < 9; ++column) {
    EXPECT_EQ(wide[column], static_cast<float>(double{0.02f} * RandomNormal({5, 42}, 0, column)));
  }
  InitializeWeights(6, 0.02f, 42, other, 9);
  EXPECT_NE(0, std::memcmp(wide, other, sizeof(wide)));
  InitializeWeights(5, 0.02f, 43, other, 9);
  EXPECT_NE(0, std::memcmp(wide, other, sizeof(wide)));
}

TEST(InitializerTest, HasTheRightSpread) {
  double sum = 0, squares = 0;
  std::vector<float> row(64);
  for (uint64_t id = 1; id <= 200; ++id) {
    InitializeWeights(9, 0.5f, id, row.data(), 64);
    for (float w : row) sum += w, squares += double{w} * w;
  }
  EXPECT_NEAR(sum / 12800, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 12800), 0.5, 0.02);
}

TEST(InitializerTest, ZeroStddevGivesZeros) {
  float row[5] = {1, 1, 1, 1, 1};
  InitializeWeights(9, 0, 3, row, 5);
  for (float w : row) EXPECT_EQ(w, 0);
}

TEST(RowIndexTest, AgreesWithAMapThroughGrowthAndClear) {
  RowIndex index;
  std::map<uint64_t, uint64_t> expected;
  for (int round = 0; round < 2; ++round) {
    // Sequential, scattered and clustered ids (equal low bits) all have to work.
    for (uint64_t i = 1; i <= 3000; ++i) {
      for (uint64_t id : {i, Fmix64(i), i << 40, ~i}) {
        const auto [number, is_new] = index.FindOrInsert(id, expected.size());
        const auto [place, inserted] = expected.emplace(id, expected.size());
        ASSERT_EQ(is_new, inserted) << id;
        ASSERT_EQ(number, place->second) << id;
      }
    }
    ASSERT_EQ(index.size(), expected.size());
    for (const auto& [id, number] : expected) ASSERT_EQ(index.Find(id), number);
    EXPECT_EQ(index.Find(uint64_t{1} << 62), RowIndex::kAbsent);
    index.Clear();
    expected.clear();
    EXPECT_EQ(index.size(), 0u);
    EXPECT_EQ(index.Find(1), RowIndex::kAbsent);
  }
}

TEST(SaturatingTest, ConvertsExactlyAndStopsAtTheTop) {
  EXPECT_EQ(ToFixedPoint(0), 0u);
  EXPECT_EQ(ToFixedPoint(1), absl::MakeUint128(1, 0));
  EXPECT_EQ(ToFixedPoint(0x1p-64), 1u);
  EXPECT_EQ(ToFixedPoint(0x1p-65), 0u);
  EXPECT_EQ(ToFixedPoint(0x1.8p63), absl::MakeUint128(uint64_t{3} << 62, 0));
  for (double high : {0x1p64, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_EQ(ToFixedPoint(high), absl::Uint128Max());
  }
  EXPECT_EQ(SaturatingAdd(absl::Uint128Max() - 1, 1), absl::Uint128Max());
  EXPECT_EQ(SaturatingAdd(absl::Uint128Max(), ToFixedPoint(2)), absl::Uint128Max());
  EXPECT_EQ(FromFixedPoint(ToFixedPoint(2.75)), 2.75);
}

}  // namespace
}  // namespace tandem::ps
