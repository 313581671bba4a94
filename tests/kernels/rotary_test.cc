#include "kernels/rotary.h"

#include <cmath>

#include "tests/kernels/bf16_arrays.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kRows = 9, kHeads = 3, kDepth = 6, kPositions = 5;

// Cosines and sines of arbitrary angles.
Array<double> Table() {
  Array<double> table({kPositions, kDepth});
  for (int64_t n = 0; n < kPositions; ++n) {
    for (int64_t i = 0; i < kDepth / 2; ++i) {
      const double angle = 0.7 * static_cast<double>(n) / static_cast<double>(i + 1);
      table[n * kDepth + i] = std::cos(angle);
      table[n * kDepth + kDepth / 2 + i] = std::sin(angle);
    }
  }
  return table;
}

Array<int64_t> Positions() {
  Array<int64_t> positions({kRows});
  for (int64_t t = 0; t < kRows; ++t) positions[t] = (2 * t + 1) % kPositions;
  return positions;
}

TEST(RotaryTest, TurnsPairsOfTheFirstHeadsAndCopiesTheOthers) {
  TestStream stream(2);
  const Shape shape{kRows, kHeads, kDepth};
  Array<double> input = RandomArray<double>(shape, 3), output(shape, 77), table = Table();
  Array<int64_t> positions = Positions();
  Rotate({input, output, positions, table, /*turned=*/2}, stream);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t row = (t * kHeads + h) * kDepth;
      for (int64_t i = 0; i < kDepth / 2; ++i) {
        const double cosine = h < 2 ? table[positions[t] * kDepth + i] : 1,
                     sine = h < 2 ? table[positions[t] * kDepth + kDepth / 2 + i] : 0;
        const double a = input[row + i], b = input[row + kDepth / 2 + i];
        EXPECT_DOUBLE_EQ(output[row + i], a * cosine - b * sine);
        EXPECT_DOUBLE_EQ(output[row + kDepth / 2 + i], b * cosine + a * sine);
      }
    }
  }
}

TEST(RotaryTest, ATurnBackUndoesATurnInPlace) {
  TestStream stream(1);
  const Shape shape{kRows, kHeads, kDepth};
  const Array<double> input = RandomArray<double>(shape, 3);
  Array<double> turned = input, table = Table();
  Array<int64_t> positions = Positions();
  Rotate({turned, turned, positions, table, kHeads}, stream);
  Rotate({turned, turned, positions, table, kHeads, /*back=*/true}, stream);
  ExpectNear(turned, input, 1e-14);
}

TEST(RotaryTest, F32AndBf16MatchF64) {
  TestStream stream(2);
  const Shape shape{kRows, kHeads, kDepth};
  Array<double> wanted(shape), table = Table();
  Array<float> table_f32 = Converted<float>(table);
  Array<int64_t> positions = Positions();
  Array<float> f32 = RandomArray<float>(shape, 4);
  Array<double> exact = Converted<double>(f32);
  Rotate({exact, wanted, positions, table, kHeads}, stream);
  Rotate({f32, f32, positions, table_f32, kHeads}, stream);
  ExpectNear(f32, wanted, 1e-6);
  Array<BFloat16> bf16 = Rounded(RandomArray<float>(shape, 4));
  exact = Exact(bf16);
  Rotate({exact, wanted, positions, table, kHeads}, stream);
  Rotate({bf16, bf16, positions, table_f32, kHeads}, stream);
  ExpectNear(Exact(bf16), wanted, 1.0 / 128);
}

}  // namespace
}  // namespace tandem::kernels
