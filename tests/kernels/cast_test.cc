#include "kernels/cast.h"

#include <limits>

#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

Array<BFloat16> CastToBf16(Array<float> x, int num_threads) {
  TestStream stream(num_threads);
  Array<BFloat16> y(x.shape);
  Cast(y, x, stream);
  return y;
}

TEST(CastTest, RoundsEveryElementToTheNearestForEverySizeAndThreadCount) {
  for (const int64_t n : {0, 1, 3, 17, 64, 65, 100003}) {
    const Array<float> x = RandomArray<float>({n}, 1, 1e4);
    const Array<BFloat16> one = CastToBf16(x, 1), three = CastToBf16(x, 3);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(one[i].bits, ToBFloat16(x[i]).bits) << "element " << i << " of " << n;
      ASSERT_EQ(one[i].bits, three[i].bits);
      ASSERT_LE(std::fabs(ToFloat(one[i]) - x[i]), std::fabs(x[i]) / 256);
    }
  }
}

TEST(CastTest, TiesGoToEvenAndSpecialValuesSurvive) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  Array<float> x({8});
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 + 3 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  x.values = {1.00390625f,
              1.01171875f,
              -0.0f,
              infinity,
              -infinity,
              nan,
              std::numeric_limits<float>::max(),
              1e-40f,
              0};
  Array<BFloat16> y;
  ForEachInstructionSet([&](InstructionSet set) {
    const Array<BFloat16> found = CastToBf16(x, 1);
    if (set == InstructionSet::BASELINE) y = found;
    ExpectSameBits(found, y);
  });
  EXPECT_EQ(ToFloat(y[0]), 1.0f);
  EXPECT_EQ(ToFloat(y[1]), 1.015625f);
  EXPECT_EQ(y[2].bits, 0x8000);
  EXPECT_EQ(ToFloat(y[3]), infinity);
  EXPECT_EQ(ToFloat(y[4]), -infinity);
  EXPECT_TRUE(std::isnan(ToFloat(y[5])));
  EXPECT_EQ(ToFloat(y[6]), infinity);
  EXPECT_EQ(y[7].bits, 1);  // the nearest denormal
}

TEST(CastTest, ThereAndBackKeepsBf16Values) {
  TestStream stream;
  Array<BFloat16> x = Rounded(RandomArray<float>({1001}, 2)), again({1001});
  Array<float> wide({1001});
  ForEachInstructionSet([&](InstructionSet) {
    Cast(wide, x, stream);
    Cast(again, wide, stream);
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(wide[i], ToFloat(x[i]));
      ASSERT_EQ(again[i].bits, x[i].bits);
    }
  });
}

}  // namespace
}  // namespace tandem::kernels
