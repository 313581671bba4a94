#include "kernels/gemm.h"

#include <tuple>

#include "kernels/cpu/matmul/onednn_matmul.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

struct Case {
  int64_t m, n, k;
};

// Covers every path that a shape may take: rows, columns (few rows, many columns), depth (weight
// gradients), and every remainder.
const Case kCases[] = {{0, 3, 2},       {3, 0, 2},       {3, 2, 0},      {1, 1, 1},
                       {1, 17, 3},      {3, 1, 65},      {17, 64, 17},   {64, 65, 64},
                       {65, 3, 129},    {300, 64, 64},   {1030, 5, 64},  {16, 1100, 9},
                       {64, 1025, 1},   {7, 9, 1025},    {64, 8, 2100},  {5, 3, 4097},
                       {260, 8, 2100},  {64, 8200, 9},   {760, 720, 70}, {64, 2100, 300},
                       {300, 130, 200}, {132, 4000, 128}};

Array<double> Naive(const Case& s, bool ta, bool tb, const Array<double>& a, const Array<double>& b,
                    const Array<double>& c, bool accumulate) {
  Array<double> result({s.m, s.n});
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = accumulate ? c[i * s.n + j] : 0;
      for (int64_t d = 0; d < s.k; ++d)
        sum += a[ta ? d * s.m + i : i * s.k + d] * b[tb ? j * s.k + d : d * s.n + j];
      result[i * s.n + j] = sum;
    }
  }
  return result;
}

Array<double> WithBias(Array<double> c, const Array<double>& bias) {
  for (int64_t i = 0; i < c.size(); ++i) c[i] += bias[i % bias.size()];
  return c;
}

template <class T>
Array<T> Product(bool ta, bool tb, Array<T> a, Array<T> b, Array<T> c, bool accumulate,
                 int num_threads) {
  TestStream stream(num_threads);
  Gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb, .accumulate = accumulate},
       stream);
  return c;
}

class GemmTest : public testing::TestWithParam<std::tuple<bool, bool, bool>> {};

TEST_P(GemmTest, MatchesTheNaiveProductForEverySizeAndThreadCount) {
  const auto [ta, tb, accumulate] = GetParam();
  for (const Case& s : kCases) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    const Array<float> a = RandomArray<float>(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const Array<float> b = RandomArray<float>(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Array<float> c = RandomArray<float>({s.m, s.n}, 3);
    const Array<double> a64 = Converted<double>(a), b64 = Converted<double>(b),
                        c64 = Converted<double>(c);
    const Array<double> wanted = Naive(s, ta, tb, a64, b64, c64, accumulate);
    ExpectNear(Product(ta, tb, a64, b64, c64, accumulate, 2), wanted, 1e-12);
    const Array<float> one = Product(ta, tb, a, b, c, accumulate, 1);
    ExpectNear(one, wanted, 1.5e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6);
    ExpectSameBits(one, Product(ta, tb, a, b, c, accumulate, 3));
    ExpectSameBits(one, Product(ta, tb, a, b, c, accumulate, 1));
  }
}

template <class T>
Array<T> BiasedProduct(bool ta, bool tb, Array<T> a, Array<T> b, Array<T> bias, Array<T> c,
                       bool accumulate, int num_threads) {
  TestStream stream(num_threads);
  Gemm({a, b, c, ta, tb, accumulate, bias}, stream);
  return c;
}

TEST_P(GemmTest, BiasIsAddedToEveryRow) {
  const auto [ta, tb, accumulate] = GetParam();
  for (const Case& s : kCases) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    const Array<float> a = RandomArray<float>(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const Array<float> b = RandomArray<float>(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Array<float> c = RandomArray<float>({s.m, s.n}, 3), bias = RandomArray<float>({s.n}, 4);
    const Array<double> a64 = Converted<double>(a), b64 = Converted<double>(b),
                        c64 = Converted<double>(c);
    const Array<double> bias64 = Converted<double>(bias);
    const Array<double> wanted = WithBias(Naive(s, ta, tb, a64, b64, c64, accumulate), bias64);
    ExpectNear(BiasedProduct(ta, tb, a64, b64, bias64, c64, accumulate, 2), wanted, 1e-12);
    const Array<float> one = BiasedProduct(ta, tb, a, b, bias, c, accumulate, 1);
    ExpectNear(one, wanted, 1.5e-6 * std::sqrt(static_cast<double>(s.k)) + 1e-6);
    ExpectSameBits(one, BiasedProduct(ta, tb, a, b, bias, c, accumulate, 3));
  }
}

// Computes c of bf16 operands with a bias, as f32 or, unless it accumulates, as bf16.
template <class Result>
Array<Result> Bf16Product(bool ta, bool tb, Array<BFloat16> a, Array<BFloat16> b, Array<float> bias,
                          Array<Result> c, bool accumulate, int num_threads) {
  TestStream stream(num_threads);
  Gemm({a, b, c, ta, tb, accumulate, bias}, stream);
  return c;
}

// Products of bf16 are exact in f32. So an f32 result errs by the rounding of K + 2 additions of at
// most `terms`, the sum of absolute values.
// A bf16 result is rounded once more, by half of the last of its 8 bits: up to 2^-8 of the result.
template <class Result>
void ExpectWithinRounding(const Array<Result>& found, const Array<double>& wanted,
                          const Array<double>& terms, int64_t k) {
  for (int64_t i = 0; i < wanted.size(); ++i) {
    double value, rounding = static_cast<double>(k + 2) * terms[i] * 0x1p-24;
    if constexpr (std::is_same_v<Result, BFloat16>) {
      value = ToFloat(found[i]);
      rounding += (std::fabs(wanted[i]) + rounding) * 0x1p-8;
    } else {
      value = found[i];
    }
    ASSERT_LE(std::fabs(value - wanted[i]), rounding)
        << "element " << i << ": " << value << ", wanted " << wanted[i];
  }
}

Array<double> Absolute(Array<double> x) {
  for (double& value : x.values) value = std::fabs(value);
  return x;
}

TEST_P(GemmTest, Bf16ProductIsOffByItsRoundingAlone) {
  const auto [ta, tb, accumulate] = GetParam();
  for (const Case& s : kCases) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    const Array<BFloat16> a =
        Rounded(RandomArray<float>(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1));
    const Array<BFloat16> b =
        Rounded(RandomArray<float>(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2));
    const Array<float> c = RandomArray<float>({s.m, s.n}, 3), bias = RandomArray<float>({s.n}, 4);
    const Array<double> c64 = Converted<double>(c), bias64 = Converted<double>(bias);
    const Array<double> wanted =
        WithBias(Naive(s, ta, tb, Exact(a), Exact(b), c64, accumulate), bias64);
    const Array<double> terms = WithBias(
        Naive(s, ta, tb, Absolute(Exact(a)), Absolute(Exact(b)), Absolute(c64), accumulate),
        Absolute(bias64));
    const Array<float> one = Bf16Product(ta, tb, a, b, bias, c, accumulate, 1);
    ExpectWithinRounding(one, wanted, terms, s.k);
    ExpectSameBits(one, Bf16Product(ta, tb, a, b, bias, c, accumulate, 3));
    if (accumulate) continue;
    const Array<BFloat16> rounded =
        Bf16Product(ta, tb, a, b, bias, Array<BFloat16>({s.m, s.n}), false, 1);
    ExpectWithinRounding(rounded, wanted, terms, s.k);
    const Array<BFloat16> three =
        Bf16Product(ta, tb, a, b, bias, Array<BFloat16>({s.m, s.n}), false, 3);
    for (int64_t i = 0; i < rounded.size(); ++i)
      ASSERT_EQ(rounded[i].bits, three[i].bits) << "element " << i;
  }
}

TEST_P(GemmTest, Bf16BiasIsTheSameNumbersInF32) {
  const auto [ta, tb, accumulate] = GetParam();
  if (accumulate) return;  // never into bf16
  for (const Case& s : kCases) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    Array<BFloat16> a = Rounded(RandomArray<float>(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1));
    Array<BFloat16> b = Rounded(RandomArray<float>(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2));
    Array<BFloat16> bias = Rounded(RandomArray<float>({s.n}, 4)), c({s.m, s.n});
    const Array<BFloat16> wanted =
        Bf16Product(ta, tb, a, b, Converted<float>(Exact(bias)), c, false, 1);
    TestStream stream;
    Gemm({.a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb, .bias = bias}, stream);
    for (int64_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i].bits, wanted[i].bits) << "element " << i;
  }
}

TEST_P(GemmTest, InstructionSetsAgree) {
  const auto [ta, tb, accumulate] = GetParam();
  for (const Case& s : kCases) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    const Array<float> a = RandomArray<float>(ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
    const Array<float> b = RandomArray<float>(tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
    const Array<float> c = RandomArray<float>({s.m, s.n}, 3), bias = RandomArray<float>({s.n}, 4);
    const Array<BFloat16> half_a = Rounded(a), half_b = Rounded(b);
    Array<float> wanted, half_wanted;
    ForEachInstructionSet([&](InstructionSet set) {
      const Array<float> found = BiasedProduct(ta, tb, a, b, bias, c, accumulate, 1);
      const Array<float> half_found = Bf16Product(ta, tb, half_a, half_b, bias, c, accumulate, 1);
      if (set == InstructionSet::BASELINE) wanted = found, half_wanted = half_found;
      ExpectSameBits(found, wanted);
      ExpectSameBits(half_found, half_wanted);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Flags, GemmTest,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

// A row of the product depends on that row of a alone: batches of other sizes give the same bits.
// oneDNN's kernels for processors without AVX-512 do not promise this.
TEST(GemmRowsTest, RowDoesNotDependOnHowManyRowsThereAre) {
  if (!MatmulTakesPanels(DType::F32)) GTEST_SKIP() << "no panel kernels on this processor";
  for (const auto& [n, k, set] :
       {std::tuple<int64_t, int64_t, InstructionSet>{64, 64, InstructionSet::AMX},
        {33, 4200, InstructionSet::AMX},
        {256, 1024, InstructionSet::AMX},
        {256, 1024, InstructionSet::AVX512},
        {1100, 300, InstructionSet::AMX},
        {1100, 300, InstructionSet::AVX512},
        {130, 1100, InstructionSet::AMX}}) {
    const InstructionSetLimit limit(set);
    for (const bool transpose_b : {false, true}) {
      const Array<float> a = RandomArray<float>({700, k}, 1),
                         b = RandomArray<float>(transpose_b ? Shape{n, k} : Shape{k, n}, 2);
      const Array<float> all =
          Product<float>(false, transpose_b, a, b, Array<float>({700, n}), false, 1);
      for (const int64_t rows : {1, 17, 64, 333, 511}) {
        Array<float> head({rows, k}), wanted({rows, n});
        std::copy_n(a.values.begin(), rows * k, head.values.begin());
        std::copy_n(all.values.begin(), rows * n, wanted.values.begin());
        ExpectSameBits(
            Product<float>(false, transpose_b, head, b, Array<float>({rows, n}), false, 1), wanted);
      }
    }
  }
}

TEST(GemmRowsTest, Bf16RowDoesNotDependOnHowManyRowsThereAre) {
  const Array<BFloat16> a = Rounded(RandomArray<float>({700, 256}, 1)),
                        b = Rounded(RandomArray<float>({256, 2048}, 2));
  const Array<float> bias = RandomArray<float>({2048}, 3);
  const Array<BFloat16> all =
      Bf16Product(false, false, a, b, bias, Array<BFloat16>({700, 2048}), false, 1);
  for (const int64_t rows : {1, 17, 64, 333}) {
    Array<BFloat16> head({rows, 256});
    std::copy_n(a.values.begin(), rows * 256, head.values.begin());
    const Array<BFloat16> found =
        Bf16Product(false, false, head, b, bias, Array<BFloat16>({rows, 2048}), false, 1);
    for (int64_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i].bits, all[i].bits) << rows << " rows, element " << i;
  }
}

TEST(GemmShapeTest, AccumulatingIntoBf16Dies) {
  Array<BFloat16> a({2, 3}), b({3, 5}), c({2, 5});
  TestStream stream;
  EXPECT_DEATH(Gemm({.a = a, .b = b, .c = c, .accumulate = true}, stream), "check failed");
}

TEST(GemmShapeTest, MismatchedInnerExtentDies) {
  Array<float> a({2, 3}), b({4, 5}), c({2, 5});
  TestStream stream;
  EXPECT_DEATH(Gemm({.a = a, .b = b, .c = c}, stream),
               "check failed.*\\[2, 3\\] \\[4, 5\\] \\[2, 5\\]");
}

// Dense operands stay on oneDNN's blocked kernels where the processor has such kernels.
TEST(GemmImplementationTest, ShapesOfTheCutsStayOnBlockedKernels) {
  for (const DType operand : {DType::F32, DType::BF16}) {
    if (!MatmulTakesPanels(operand))
      GTEST_SKIP() << "no panel kernels of " << NameOf(operand) << " on this processor";
    const auto expect_blocked = [&](MatmulShape shape) {
      shape.operand = operand;
      EXPECT_EQ(std::string(MatmulImplementation(shape)).substr(0, 3), "brg")
          << NameOf(operand) << " " << shape.m << " x " << shape.n << " x " << shape.k << ", "
          << MatmulImplementation(shape);
    };
    for (const int64_t n : {64, 65, 512, 1024}) {
      expect_blocked({.m = 512, .n = n, .k = 64, .panels = true});
      expect_blocked({.m = 16, .n = n, .k = 256, .panels = true, .bias = true});
      expect_blocked(
          {.m = 256, .n = n, .k = 1024, .panels = true, .bias = true, .accumulate = true});
      expect_blocked({.m = 128, .n = n, .k = 256, .result = operand, .panels = true, .bias = true});
      expect_blocked({.m = 16, .n = n, .k = 64});  // few rows, b as it stands
      expect_blocked(
          {.m = 256, .n = n, .k = 512, .accumulate = true});  // a chunk of a weight's gradient
      if (operand == DType::F32) expect_blocked({.m = 64, .n = n, .k = 1024, .transpose_a = true});
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
