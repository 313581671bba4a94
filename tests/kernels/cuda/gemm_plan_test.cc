#include "kernels/cuda/plan/gemm_plan.h"

#include <tuple>

#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

using cuda::ColumnMajor;
using cuda::GemmPlan;

double At(const ColumnMajor& x, int64_t row, int64_t column) {
  const int64_t i = row + column * x.leading;
  return x.dtype == DType::F32 ? static_cast<const float*>(x.data)[i]
                               : ToFloat(static_cast<const BFloat16*>(x.data)[i]);
}

// Stands in for the library: checks extents and leading dimensions, and sums by definition. Results
// are F32.
void Execute(const GemmPlan& plan) {
  const ColumnMajor &first = plan.first, &second = plan.second, &result = plan.result;
  for (const ColumnMajor* x : {&first, &second, &result}) ASSERT_GE(x->leading, x->rows);
  ASSERT_EQ(plan.transpose_first ? first.columns : first.rows, result.rows);
  ASSERT_EQ(plan.transpose_first ? first.rows : first.columns, plan.depth);
  ASSERT_EQ(plan.transpose_second ? second.columns : second.rows, plan.depth);
  ASSERT_EQ(plan.transpose_second ? second.rows : second.columns, result.columns);
  float* out = static_cast<float*>(result.data);
  for (int64_t j = 0; j < result.columns; ++j) {
    for (int64_t i = 0; i < result.rows; ++i) {
      double sum = plan.bias == nullptr ? 0 : static_cast<const float*>(plan.bias)[i];
      if (plan.accumulate) sum += At(result, i, j);
      for (int64_t d = 0; d < plan.depth; ++d) {
        const double factor = plan.transpose_first ? At(first, d, i) : At(first, i, d);
        sum += factor * (plan.transpose_second ? At(second, j, d) : At(second, d, j));
      }
      out[i + j * result.leading] = static_cast<float>(sum);
    }
  }
}

// Small whole numbers, whose f32 and bf16 products and sums are exact.
template <class T>
Array<T> Whole(Shape shape, uint64_t seed) {
  const Array<double> random = RandomArray<double>(shape, seed, 5);
  Array<T> whole(shape);
  for (int64_t i = 0; i < whole.size(); ++i) {
    if constexpr (std::is_same_v<T, BFloat16>)
      whole[i] = ToBFloat16(static_cast<float>(std::round(random[i])));
    else
      whole[i] = static_cast<T>(std::round(random[i]));
  }
  return whole;
}
double Exactly(float x) { return x; }
double Exactly(BFloat16 x) { return ToFloat(x); }
template <class T>
Array<double> In64(const Array<T>& x) {
  Array<double> wide(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) wide[i] = Exactly(x[i]);
  return wide;
}

// An F32 array whose first element lies on a multiple of 16 bytes, or 4 bytes behind one.
struct Bias {
  alignas(16) float values[72];
  Bias(const Array<float>& from, bool aligned) : first(values + !aligned) {
    std::copy_n(from.values.begin(), from.size(), first);
  }
  float* first;
};

class GemmPlanTest : public testing::TestWithParam<std::tuple<bool, bool, bool>> {
 protected:
  // Executes the plan of the product and compares it with the CPU's reference.
  template <class T>
  void Check(int64_t m, int64_t n, int64_t k, bool with_bias) {
    SCOPED_TRACE(testing::Message()
                 << m << " x " << n << " x " << k << (with_bias ? " with bias" : ""));
    const auto [ta, tb, accumulate] = GetParam();
    Array<T> a = Whole<T>(ta ? Shape{k, m} : Shape{m, k}, 1),
             b = Whole<T>(tb ? Shape{n, k} : Shape{k, n}, 2);
    Array<float> c = Whole<float>({m, n}, 3), bias = Whole<float>({n}, 4);
    Array<double> a64 = In64(a), b64 = In64(b), c64 = In64(c), bias64 = In64(bias);
    const Bias place(bias, true);

    GemmArgs args{
        .a = a, .b = b, .c = c, .transpose_a = ta, .transpose_b = tb, .accumulate = accumulate};
    if (with_bias) args.bias = DenseView(place.first, {n});
    const GemmPlan plan = cuda::PlanGemm(args);
    Execute(plan);
    // The plan leaves a bias that the library would refuse to its caller.
    const bool biased = with_bias && n > 1 && k > 1;
    ASSERT_EQ(plan.bias != nullptr, biased);

    GemmArgs wide{.a = a64,
                  .b = b64,
                  .c = c64,
                  .transpose_a = ta,
                  .transpose_b = tb,
                  .accumulate = accumulate};
    if (biased) wide.bias = bias64;
    Gemm(wide, stream_);
    for (int64_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], c64[i]) << "element " << i;
  }

  TestStream stream_;
};

TEST_P(GemmPlanTest, ExecutedByColumnsGivesTheProductByRows) {
  for (const int64_t m : {1, 3, 17, 65}) {
    for (const int64_t n : {1, 3, 17, 64}) {
      for (const int64_t k : {1, 3, 17, 64}) {
        for (const bool with_bias : {false, true}) {
          Check<float>(m, n, k, with_bias);
          Check<BFloat16>(m, n, k, with_bias);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Flags, GemmPlanTest,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

GemmArgs ArgsWithBias(DType dtype, const ArrayView& bias, int64_t m, int64_t n, int64_t k) {
  return {.a = ArrayView(nullptr, DType::BF16, {m, k}),
          .b = ArrayView(nullptr, DType::BF16, {k, n}),
          .c = ArrayView(nullptr, dtype, {m, n}),
          .bias = bias};
}

TEST(GemmBiasTest, ProductTakesAnAlignedBiasOfItsOwnTypeOnly) {
  Array<float> bias({8}, 1);
  const Bias aligned(bias, true), misaligned(bias, false);
  const ArrayView view = DenseView(aligned.first, {8}), odd = DenseView(misaligned.first, {8});
  EXPECT_TRUE(cuda::TakesBias(ArgsWithBias(DType::F32, view, 3, 8, 5)));
  EXPECT_TRUE(cuda::TakesBias(ArgsWithBias(DType::F32, view, 1, 8, 5)));
  EXPECT_FALSE(cuda::TakesBias(ArgsWithBias(DType::BF16, view, 3, 8, 5)));
  EXPECT_TRUE(cuda::TakesBias(
      ArgsWithBias(DType::BF16, ArrayView(aligned.first, DType::BF16, {8}), 3, 8, 5)));
  EXPECT_FALSE(cuda::TakesBias(ArgsWithBias(DType::F32, odd, 3, 8, 5)));
  EXPECT_FALSE(cuda::TakesBias(ArgsWithBias(DType::F32, view, 3, 8, 1)));
  EXPECT_FALSE(cuda::TakesBias(ArgsWithBias(DType::F32, view, 3, 1, 5)));
  EXPECT_FALSE(cuda::TakesBias(ArgsWithBias(DType::F32, ArrayView(), 3, 8, 5)));
}

TEST(GemmActivationTest, ProductTakesTheGeluByTanhOfWholeVectorsOfBf16) {
  alignas(16) BFloat16 c[8 * 9], bias[8];
  const auto taken = [&](Activation activation, DType dtype, int64_t n, int64_t k,
                         int64_t shift = 0, const ArrayView& added = {}) {
    GemmArgs args = ArgsWithBias(dtype, added, 3, n, k);
    args.c.data = c + shift;
    return cuda::TakesActivation(args, activation);
  };
  const ArrayView half(bias, DType::BF16, {8}), wide(bias, DType::F32, {8}),
      odd(bias + 1, DType::BF16, {8});
  EXPECT_TRUE(taken(Activation::GELU_TANH, DType::BF16, 8, 5));
  EXPECT_TRUE(taken(Activation::GELU_TANH, DType::BF16, 8, 5, 0, half));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::BF16, 8, 5, 0, wide));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::BF16, 8, 5, 0, odd));
  EXPECT_FALSE(taken(Activation::GELU, DType::BF16, 8, 5));
  EXPECT_FALSE(taken(Activation::RELU, DType::BF16, 8, 5));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::F32, 8, 5));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::BF16, 12, 5));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::BF16, 8, 1));
  EXPECT_FALSE(taken(Activation::GELU_TANH, DType::BF16, 8, 5, 4));
}

TEST(GemmAlignmentTest, PowerOfTwoUpToSixteen) {
  const auto alignment = [](uintptr_t address) {
    return cuda::AlignmentOf(reinterpret_cast<const void*>(address));
  };
  EXPECT_EQ(alignment(0x1002), 2);
  EXPECT_EQ(alignment(0x1004), 4);
  EXPECT_EQ(alignment(0x1006), 2);
  EXPECT_EQ(alignment(0x1008), 8);
  EXPECT_EQ(alignment(0x1010), 16);
  EXPECT_EQ(alignment(0x1000), 16);
}

}  // namespace
}  // namespace tandem::kernels
