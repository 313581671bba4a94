#include "kernels/gemm.h"

#include <tuple>

#include "kernels/cpu/onednn_matmul.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

struct Case {
  int64_t m, n, k;
};

// Whatever path a shape takes: rows, columns (few rows, many columns), depth (weight gradients), and every remainder.
const Case kCases[] = {{0, 3, 2},    {3, 0, 2},    {3, 2, 0},     {1, 1, 1},     {1, 17, 3},    {3, 1, 65},   {17, 64, 17},
                       {64, 65, 64}, {65, 3, 129}, {300, 64, 64}, {1030, 5, 64}, {16, 1100, 9}, {64, 1025, 1}, {7, 9, 1025},
                       {64, 8, 2100}, {5, 3, 4097}};

Array<double> Naive(const Case& s, bool ta, bool tb, const Array<double>& a, const Array<double>& b, const Array<double>& c,
                    bool accumulate) {
  Array<double> result({s.m, s.n});
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = accumulate ? c[i * s.n + j] : 0;
      for (int64_t d = 0; d < s.k; ++d) sum += a[ta ? d * s.m + i : i * s.k + d] * b[tb ? j * s.k + d : d * s.n + j];
      result[i * s.n + j] = sum;
    }
  }
  return result;
}

template <class T>
Array<T> Product(bool ta, bool tb, Array<T> a, Array<T> b, Array<T> c, bool accumulate, int num_threads) {
  TestStream stream(num_threads);
  Gemm({a, b, c, ta, tb, accumulate}, stream);
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
    const Array<double> a64 = Converted<double>(a), b64 = Converted<double>(b), c64 = Converted<double>(c);
    const Array<double> wanted = Naive(s, ta, tb, a64, b64, c64, accumulate);
    ExpectNear(Product(ta, tb, a64, b64, c64, accumulate, 2), wanted, 1e-12);
    const Array<float> one = Product(ta, tb, a, b, c, accumulate, 1);
    ExpectNear(one, wanted, 6e-7 * std::sqrt(static_cast<double>(s.k)) + 1e-6);
    ExpectSameBits(one, Product(ta, tb, a, b, c, accumulate, 3));
    ExpectSameBits(one, Product(ta, tb, a, b, c, accumulate, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Flags, GemmTest, testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

// A row of the product is a function of that row of a: batches of other sizes give it the same bits.
TEST(GemmRowsTest, RowDoesNotDependOnHowManyRowsThereAre) {
  const Array<float> a = RandomArray<float>({700, 64}, 1), b = RandomArray<float>({64, 64}, 2);
  const Array<float> all = Product<float>(false, false, a, b, Array<float>({700, 64}), false, 1);
  for (int64_t rows : {1, 17, 64, 333, 511}) {
    Array<float> head({rows, 64}), wanted({rows, 64});
    std::copy_n(a.values.begin(), rows * 64, head.values.begin());
    std::copy_n(all.values.begin(), rows * 64, wanted.values.begin());
    ExpectSameBits(Product<float>(false, false, head, b, Array<float>({rows, 64}), false, 1), wanted);
  }
}

TEST(GemmShapeTest, MismatchedInnerExtentDies) {
  Array<float> a({2, 3}), b({4, 5}), c({2, 5});
  TestStream stream;
  EXPECT_DEATH(Gemm({a, b, c}, stream), "check failed.*\\[2, 3\\] \\[4, 5\\] \\[2, 5\\]");
}

// The rule of dense operands: what the kernel asks of oneDNN stays on its blocked kernels where the processor has them.
TEST(GemmImplementationTest, DenseOperandsOfOneKindOfKernel) {
  const std::string plain = MatmulImplementation({512, 64, 64, false, false, false});
  for (const MatmulShape& shape : {MatmulShape{16, 64, 64, false, false, false}, MatmulShape{256, 64, 256, false, true, false},
                                   MatmulShape{64, 256, 1024, true, false, false}, MatmulShape{256, 256, 64, false, false, true}}) {
    EXPECT_EQ(MatmulImplementation(shape), plain);
  }
}

}  // namespace
}  // namespace tandem::kernels
