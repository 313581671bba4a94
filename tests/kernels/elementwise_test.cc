#include "kernels/elementwise.h"

#include "kernels/cpu/vector/dropout_mask.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/vectorise.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

const int64_t kSizes[] = {0, 1, 3, 17, 64, 65, 40000};

TEST(MathTest, F32FunctionsStayWithinTheirStatedErrors) {
  double worst_exp = 0, worst_log = 0, worst_log2 = 0, worst_sigmoid = 0, worst_normal = 0,
         worst_log1p = 0;
  for (int i = -86000; i <= 88000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    worst_exp = std::max(worst_exp, std::fabs(Exp(x) / std::exp(static_cast<double>(x)) - 1));
    worst_sigmoid =
        std::max(worst_sigmoid, std::fabs(Sigmoid(x) - Sigmoid(static_cast<double>(x))));
    if (std::fabs(x) < 12) {
      worst_normal = std::max(
          worst_normal, std::fabs(NormalAt(x).below - NormalAt(static_cast<double>(x)).below));
    }
    const float positive = std::exp(x);
    const double log = std::log(static_cast<double>(positive));
    worst_log = std::max(worst_log, std::fabs(Log(positive) - log) / std::max(1.0, std::fabs(log)));
    const double log2 = std::log2(static_cast<double>(positive));
    worst_log2 =
        std::max(worst_log2, std::fabs(Log2(positive) - log2) / std::max(1.0, std::fabs(log2)));
    const double log1p = std::log1p(static_cast<double>(positive));
    if (positive <= 1) worst_log1p = std::max(worst_log1p, std::fabs(Log1p(positive) / log1p - 1));
  }
  EXPECT_LT(worst_exp, 1.5e-7);
  EXPECT_LT(worst_log, 2e-7);
  EXPECT_LT(worst_log1p, 3e-7);
  EXPECT_LT(worst_log2, 3e-7);
  EXPECT_LT(worst_sigmoid, 1.2e-7);
  EXPECT_LT(worst_normal, 1.5e-7);
}

TEST(MathTest, PowersOfTwoStayWithinTheirStatedError) {
  double worst = 0, worst_for_bf16 = 0;
  for (int i = -125499; i < 127000; ++i) {
    const float x = static_cast<float>(i) * 1e-3f;
    const double exact = std::exp2(static_cast<double>(x));
    worst = std::max(worst, std::fabs(Exp2InRange(x) / exact - 1));
    worst_for_bf16 = std::max(worst_for_bf16, std::fabs(Exp2ForBFloat16(x) / exact - 1));
    ASSERT_EQ(Exp2(x), Exp2InRange(x)) << x;
  }
  EXPECT_LT(worst, 1e-7);
  EXPECT_LT(worst_for_bf16, 3e-6);
  for (float (*power)(float) : {static_cast<float (*)(float)>(Exp2), Exp2ForBFloat16}) {
    EXPECT_EQ(power(0.0f), 1.0f);
    EXPECT_GT(power(-125.5f), 0.0f);
    EXPECT_EQ(power(std::nextafter(-125.5f, -126.0f)), 0.0f);
    EXPECT_EQ(power(-1e30f), 0.0f);
    EXPECT_EQ(power(-std::numeric_limits<float>::infinity()), 0.0f);
  }
}

TEST(MathTest, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-infinity), 0.0f);
  EXPECT_EQ(Exp(-1000.0f), 0.0f);
  EXPECT_EQ(Exp(1000.0f), infinity);
  EXPECT_TRUE(std::isnan(Exp(nan)));
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(0.0f), -infinity);
  EXPECT_EQ(Log(infinity), infinity);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(nan)));
  EXPECT_EQ(Log2(8.0f), 3.0f);
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(infinity), 1.0f);
  EXPECT_LT(Sigmoid(-infinity), 1e-24f);
  EXPECT_GT(Sigmoid(-infinity), 1e-25f);
  EXPECT_EQ(NormalAt(50.0f).below, 1.0f);
  EXPECT_LT(NormalAt(-50.0f).below, 1e-26f);
  EXPECT_TRUE(std::isnan(NormalAt(nan).below));
}

// An element's value is the same alone and inside a long vector loop.
TEST(MathTest, ScalarAndVectorCodeAgree) {
  TestStream stream;
  Array<float> x = RandomArray<float>({1001}, 1, 9), all(x.shape);
  for (Activation activation :
       {Activation::GELU, Activation::GELU_TANH, Activation::SILU, Activation::SIGMOID}) {
    ActivationForward(all, x, activation, stream);
    for (int64_t i = 0; i < x.size(); ++i) {
      Array<float> one({1}, x[i]);
      ActivationForward(one, one, activation, stream);
      ASSERT_EQ(one[0], all[i]) << x[i];
    }
  }
}

// Each instruction set that this processor has gives the same bits.
TEST(VectoriseTest, InstructionSetsAgree) {
  const Array<float> x = RandomArray<float>({1003}, 1, 9);
  Array<float> wanted;
  ForEachInstructionSet([&](InstructionSet set) {
    Array<float> y({1003});
    Vectorised([from = x.values.data(), to = y.values.data()] {
      for (int64_t i = 0; i < 1000; ++i)
        to[i] = NormalAt(from[i]).below + Sigmoid(from[i]) + Exp(from[i]) + Log1p(Abs(from[i]));
      to[1000] = LaneSum<float>(1000, [=](int64_t i) { return to[i]; });
      to[1001] = LaneSum<float>(77, [=](int64_t i) { return to[i]; });
      to[1002] = LaneMax<float>(999, to);
    });
    if (set == InstructionSet::BASELINE) wanted = y;
    ExpectSameBits(y, wanted);
  });
}

TEST(ElementwiseTest, ArithmeticMatchesTheFormulaInBothTypes) {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    TestStream stream(2);
    for (int64_t n : kSizes) {
      Array<T> a = RandomArray<T>({n}, 1), b = RandomArray<T>({n}, 2);
      Array<T> sum({n}), product({n}), scaled({n}), added = a, copy({n});
      Add(sum, a, b, stream);
      Multiply(product, a, b, stream);
      Scale(scaled, a, 0.5, stream);
      AddScaled(added, b, -2, stream);
      Copy(copy, a, stream);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], a[i] + b[i]);
        ASSERT_EQ(product[i], a[i] * b[i]);
        ASSERT_EQ(scaled[i], a[i] * T(0.5));
        ASSERT_EQ(added[i], a[i] - T(2) * b[i]);
        ASSERT_EQ(copy[i], a[i]);
      }
      Add(a, a, a, stream);  // in place
      ExpectSameBits(a, [&] {
        Scale(copy, copy, 2, stream);
        return copy;
      }());
    }
  };
  check(float{});
  check(double{});
}

TEST(ElementwiseTest, FillWritesEveryType) {
  TestStream stream;
  Array<float> f({5});
  Array<int64_t> i({5});
  Array<uint8_t> u({5}, 1);
  Fill(f, 1.5, stream);
  Fill(i, -3, stream);
  Fill(u, 0, stream);
  EXPECT_EQ(f[4], 1.5f);
  EXPECT_EQ(i[4], -3);
  EXPECT_EQ(u[4], 0);
  EXPECT_EQ(u.values[5], 1) << "wrote behind the end";
}

TEST(ElementwiseTest, BiasIsAddedToEveryRowOfAllLeadingDims) {
  TestStream stream;
  Array<float> x = RandomArray<float>({2, 3, 5}, 1), bias = RandomArray<float>({5}, 2), y(x.shape);
  AddBias(y, x, bias, stream);
  for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] + bias[i % 5]);
}

TEST(ElementwiseTest, AddWhereEqualAddsInPairsOfOneNumber) {
  TestStream stream(3);
  for (const int64_t rows : {0, 1, 5, 130}) {
    for (const int64_t columns : {0, 1, 7, 64, 65}) {
      Array<float> x = RandomArray<float>({rows, columns}, 1), y(x.shape);
      Array<int64_t> row_id({rows}), column_id({columns});
      for (int64_t r = 0; r < rows; ++r) row_id[r] = r % 6;
      for (int64_t c = 0; c < columns; ++c) column_id[c] = c % 9;
      AddWhereEqual(y, x, row_id, column_id, -1e30, stream);
      for (int64_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(y[i], row_id[i / columns] == column_id[i % columns] ? x[i] - 1e30f : x[i])
            << i << " of " << rows << " by " << columns;
      }
    }
  }
}

class ActivationTest : public testing::TestWithParam<Activation> {};

TEST_P(ActivationTest, F32MatchesF64) {
  TestStream stream(2);
  for (int64_t n : kSizes) {
    Array<float> x = RandomArray<float>({n}, 1, 6), y({n}), grad = RandomArray<float>({n}, 2),
                 grad_x({n});
    Array<double> x64 = Converted<double>(x), y64({n}), grad64 = Converted<double>(grad),
                  grad_x64({n});
    ActivationForward(y, x, GetParam(), stream);
    ActivationForward(y64, x64, GetParam(), stream);
    ActivationBackward(grad_x, grad, x, GetParam(), stream);
    ActivationBackward(grad_x64, grad64, x64, GetParam(), stream);
    ExpectNear(y, y64, 1e-6);
    ExpectNear(grad_x, grad_x64, 2e-6);
  }
}

TEST_P(ActivationTest, GradientMatchesDifferences) {
  TestStream stream;
  Array<double> x = RandomArray<double>({41}, 3, 4), weight = RandomArray<double>({41}, 4),
                grad({41});
  ActivationBackward(grad, weight, x, GetParam(), stream);
  ExpectNear(grad,
             NumericGradient(
                 x, weight, [&](Array<double>& y) { ActivationForward(y, x, GetParam(), stream); }),
             1e-7);
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest,
                         testing::Values(Activation::GELU, Activation::GELU_TANH, Activation::RELU,
                                         Activation::SILU, Activation::SIGMOID));

TEST(SwiGluTest, IsSiluOfTheFirstHalfTimesTheSecond) {
  TestStream one, three(3);
  for (const int64_t columns : {1, 3, 17, 64, 65, 300}) {
    constexpr int64_t kRows = 7;
    Array<float> x = RandomArray<float>({kRows, 2 * columns}, 1, 6), y({kRows, columns}), again = y,
                 silu({kRows, 2 * columns});
    SwiGluForward(y, x, one);
    SwiGluForward(again, x, three);
    ExpectSameBits(y, again);
    ActivationForward(silu, x, Activation::SILU, one);
    Array<double> x64 = Converted<double>(x), y64({kRows, columns});
    SwiGluForward(y64, x64, one);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t gate = 2 * r * columns + c;
        ASSERT_EQ(y[r * columns + c], silu[gate] * x[gate + columns]) << r << " " << c;
        ASSERT_NEAR(y64[r * columns + c],
                    x64[gate] / (1 + std::exp(-x64[gate])) * x64[gate + columns], 1e-13);
      }
    }
  }
}

TEST(SwiGluTest, GradientMatchesDifferencesAndF64) {
  TestStream one, three(3);
  for (const int64_t columns : {1, 3, 17, 64, 65}) {
    Array<double> x = RandomArray<double>({4, 2 * columns}, 3, 4),
                  weight = RandomArray<double>({4, columns}, 4), grad(x.shape);
    SwiGluBackward(grad, weight, x, one);
    ExpectNear(grad,
               NumericGradient(x, weight, [&](Array<double>& y) { SwiGluForward(y, x, one); }),
               1e-7);
    Array<float> x32 = Converted<float>(x), weight32 = Converted<float>(weight), found(x.shape),
                 again(x.shape);
    SwiGluBackward(found, weight32, x32, one);
    SwiGluBackward(again, weight32, x32, three);
    ExpectNear(found, grad, 3e-6);
    ExpectSameBits(found, again);
  }
}

TEST(SwiGluTest, Bf16IsRoundedOnceInEveryInstructionSet) {
  TestStream stream;
  for (const int64_t columns : {1, 17, 64, 65}) {
    Array<BFloat16> x = Rounded(RandomArray<float>({5, 2 * columns}, 3, 4)),
                    weight = Rounded(RandomArray<float>({5, columns}, 4));
    Array<float> x32 = Converted<float>(Exact(x)), weight32 = Converted<float>(Exact(weight)),
                 y32({5, columns}), grad32(x.shape);
    SwiGluForward(y32, x32, stream);
    SwiGluBackward(grad32, weight32, x32, stream);
    ForEachInstructionSet([&](InstructionSet) {
      Array<BFloat16> y({5, columns}), grad(x.shape);
      SwiGluForward(y, x, stream);
      SwiGluBackward(grad, weight, x, stream);
      for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i].bits, ToBFloat16(y32[i]).bits) << i;
      for (int64_t i = 0; i < grad.size(); ++i)
        ASSERT_EQ(grad[i].bits, ToBFloat16(grad32[i]).bits) << i;
    });
  }
}

TEST(SwiGluTest, HalvesOfAnotherSizeDie) {
  TestStream stream;
  Array<float> x({3, 10}), y({3, 4});
  EXPECT_DEATH(SwiGluForward(y, x, stream), ".3, 10. and .3, 4.");
}

TEST(ActivationValueTest, GeluAtOneIsTheNormalProbability) {
  TestStream stream;
  Array<double> x({1}, 1.0);
  ActivationForward(x, x, Activation::GELU, stream);
  EXPECT_NEAR(x[0], 0.8413447460685429, 1e-15);
}

Array<float> Dropped(Array<float> x, Array<int64_t> rows, float probability, int num_threads = 1) {
  TestStream stream(num_threads);
  Array<float> y(x.shape);
  Dropout({x, y, rows, probability, {11, 12}, 13}, stream);
  return y;
}

TEST(DropoutTest, FollowsTheElementNumberingForEveryWidth) {
  for (int64_t columns : {1, 2, 3, 4, 5, 17, 64, 65, 300}) {
    const float p = 0.3f;
    Array<int64_t> rows({4});
    rows[0] = 5, rows[1] = 0, rows[2] = 1234567, rows[3] = int64_t{1} << 40;
    const Array<float> x = RandomArray<float>({4, columns}, 1), y = Dropped(x, rows, p);
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const uint32_t bits =
            DropoutBits({11, 12}, 13, static_cast<uint64_t>(rows[r] * columns + c));
        const int64_t i = r * columns + c;
        ASSERT_EQ(y[i], bits < DropThreshold(p)
                            ? 0.0f
                            : x[i] * static_cast<float>(KeepScale(DropThreshold(p))))
            << r << " " << c;
      }
    }
  }
}

// Runs that all begin on a block, all at the same place of a block, or each elsewhere. Covers block
// numbers beyond 32 bits.
TEST(DropoutTest, SixteenRunsSideBySideHaveTheBitsOfTheirElements) {
  constexpr RandomKey kKey{11, 12};
  constexpr uint64_t kStep = 13;
  for (const auto& [apart, start] : {std::pair<uint64_t, uint64_t>{200, 0},
                                     {200, 3},
                                     {8, 7},
                                     {204, 1},
                                     {201, 6},
                                     {uint64_t{1} << 35, 2}}) {
    for (int64_t count : {1, 5, 8, 9, 24, 97}) {
      SCOPED_TRACE(testing::Message()
                   << count << " of runs " << apart << " apart from " << start << " on");
      uint64_t first[kLanes];
      for (int l = 0; l < kLanes; ++l) first[l] = start + static_cast<uint64_t>(l) * apart;
      ForEachInstructionSet([&](InstructionSet) {
        std::vector<uint32_t> room(static_cast<size_t>(WordColumnsRoom(count)));
        const auto keys = RoundKeys(FoldKey(kKey));
        Vectorised([&](auto set) {
          const WordColumns<set> columns(keys, kStep, first, count, room.data());
          for (int64_t begin = 0, end; begin < count; begin = end) {
            end = columns.EndOfRows(begin, count);
            ASSERT_GT(end, begin);
            const uint32_t* words = columns.Rows(begin, end);
            ASSERT_LE(words + (end - begin) * kLanes, room.data() + room.size());
            for (int64_t j = begin; j < end; ++j) {
              for (int l = 0; l < kLanes; ++l) {
                ASSERT_EQ(words[(j - begin) * kLanes + l] >> 16,
                          DropoutBits(kKey, kStep, first[l] + static_cast<uint64_t>(j)))
                    << j << ", " << l;
              }
            }
          }
        });
      });
    }
  }
}

TEST(DropoutTest, KeepsTheStatedShareAndTheMean) {
  for (float p : {0.1f, 0.5f, 0.9f}) {
    const Array<float> y = Dropped(Array<float>({2000, 64}, 1.0f), Consecutive(2000), p);
    double kept = 0, sum = 0;
    for (int64_t i = 0; i < y.size(); ++i) {
      kept += y[i] != 0;
      sum += y[i];
    }
    EXPECT_NEAR(kept / y.size(), 1 - p, 0.005) << p;
    EXPECT_NEAR(sum / y.size(), 1, 0.03) << p;
  }
}

TEST(DropoutTest, ZeroProbabilityCopies) {
  const Array<float> x = RandomArray<float>({3, 7}, 1);
  ExpectSameBits(Dropped(x, Consecutive(3), 0), x);
}

TEST(DropoutTest, MaskDependsOnTheGlobalRowAlone) {
  const int64_t columns = 66;
  const Array<float> x = RandomArray<float>({900, columns}, 1);
  const Array<float> whole = Dropped(x, Consecutive(900), 0.5f);
  ExpectSameBits(Dropped(x, Consecutive(900), 0.5f, 3), whole);
  for (int64_t cut : {1, 450, 899}) {
    Array<float> head({cut, columns}), tail({900 - cut, columns});
    std::copy_n(x.values.begin(), head.size(), head.values.begin());
    std::copy_n(x.values.begin() + head.size(), tail.size(), tail.values.begin());
    head = Dropped(head, Consecutive(cut), 0.5f);
    tail = Dropped(tail, Consecutive(900 - cut, cut), 0.5f);
    for (int64_t i = 0; i < head.size(); ++i) ASSERT_EQ(head[i], whole[i]);
    for (int64_t i = 0; i < tail.size(); ++i) ASSERT_EQ(tail[i], whole[head.size() + i]);
  }
}

TEST(DropoutTest, CertainDropDies) {
  TestStream stream;
  Array<float> x({2, 3}), y({2, 3});
  Array<int64_t> rows = Consecutive(4);
  Array<uint64_t> mask({2, 1});
  EXPECT_DEATH(Dropout({x, y, rows, 1.0f, {11, 12}, 13}, stream), "probability < 1");
  EXPECT_DEATH(DropoutBackward({x, y, mask, 1.0f}, stream), "probability < 1");
  EXPECT_DEATH(DropoutBackward({x, y, mask, -0.1f}, stream), "probability < 1");
  EXPECT_DEATH(
      Dropout({x, y, ArrayView(rows.values.data(), DType::I64, {2}, {2}), 0.5f, {11, 12}, 13},
              stream),
      "row_index.is_dense");
}

TEST(DropoutTest, MaskHoldsWhatWasKeptAndTheBackwardPassReadsIt) {
  const float p = 0.4f;
  for (int64_t columns : {1, 3, 63, 64, 65, 130}) {
    Array<int64_t> rows = Consecutive(9, 77);
    Array<uint64_t> first;
    ForEachInstructionSet([&](InstructionSet set) {
      TestStream stream;
      Array<float> x({9, columns}, 1.0f), y(x.shape), grad = RandomArray<float>(x.shape, 3),
                                                      grad_x(x.shape);
      Array<uint64_t> mask({9, DropoutMaskWords(columns)});
      Dropout({x, y, rows, p, {11, 12}, 13, mask}, stream);
      DropoutBackward({grad, grad_x, mask, p}, stream);
      for (int64_t i = 0; i < x.size(); ++i) {  // x is 1, so y is the factor
        const int64_t r = i / columns, c = i % columns;
        ASSERT_EQ(y[i] != 0, (mask[r * DropoutMaskWords(columns) + c / 64] >> (c % 64) & 1) == 1)
            << r << " " << c;
        ASSERT_EQ(grad_x[i], grad[i] * y[i]) << r << " " << c;
      }
      if (set == InstructionSet::BASELINE) first = mask;
      ExpectSameBits(mask, first);
    });
  }
}

}  // namespace
}  // namespace tandem::kernels
