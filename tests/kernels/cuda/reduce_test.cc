#include "kernels/reduce.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/reduce_plan.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

TEST(ReducePlanTest, ThreadsArePowersOfTwo) {
  EXPECT_EQ(cuda::ColumnThreads(0), 1);
  EXPECT_EQ(cuda::ColumnThreads(1), 1);
  EXPECT_EQ(cuda::ColumnThreads(3), 4);
  EXPECT_EQ(cuda::ColumnThreads(1000), 32);
  EXPECT_EQ(cuda::RowThreads(512), 32);
  EXPECT_EQ(cuda::RowThreads(513), cuda::kReduceThreads);
}

TEST(ReducePlanTest, PassesOverColumnsEnd) {
  EXPECT_EQ(cuda::ColumnSumBlocks(0, true), 1);
  EXPECT_EQ(cuda::ColumnSumBlocks(64, true), 1);
  EXPECT_EQ(cuda::ColumnSumBlocks(65, true), 2);
  EXPECT_EQ(cuda::ColumnSumBlocks(512, false), 1);
  EXPECT_EQ(cuda::ColumnSumBlocks(513, false), 2);
}

using ReduceDeviceTest = DeviceTest;

template <class T>
void CheckColumnSum(Stream& device, Stream& cpu, int64_t rows, int64_t columns, int64_t shift) {
  Array<double> x = RandomFor<T>({rows * columns + shift}, 1), old = RandomFor<float>({columns}, 2);
  OnDevice<T> device_x(RoundedTo<T>(x), device);
  for (bool accumulate : {false, true}) {
    Array<double> wanted = old;
    ColumnSum(wanted, DenseView(x.values.data() + shift, {rows, columns}), accumulate, cpu);
    const Array<float> start = accumulate ? RoundedTo<float>(old) : Poisoned<float>({columns});
    OnDevice<float> output(start, device), again(start, device);
    cuda::ColumnSum(output, DenseView(device_x.data() + shift, {rows, columns}), accumulate,
                    device);
    cuda::ColumnSum(again, DenseView(device_x.data() + shift, {rows, columns}), accumulate, device);
    EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<float>)
        << rows << " x " << columns;
    ExpectSameBits(output.Get(), again.Get());
  }
}

TEST_F(ReduceDeviceTest, ColumnSumMatchesTheReference) {
  for (int64_t rows : {0, 1, 3, 64, 65, 300}) {
    for (int64_t columns : {0, 1, 3, 17, 64, 65, 520}) {
      CheckColumnSum<float>(device(), cpu(), rows, columns, 0);
      CheckColumnSum<BFloat16>(device(), cpu(), rows, columns, 0);
    }
  }
  CheckColumnSum<float>(device(), cpu(), 100, 64, 1);
  CheckColumnSum<BFloat16>(device(), cpu(), 100, 64, 1);
}

TEST_F(ReduceDeviceTest, ColumnSumOfManyRowsTakesThreePasses) {
  CheckColumnSum<float>(device(), cpu(), 64 * 512 + 65, 3, 0);
  CheckColumnSum<BFloat16>(device(), cpu(), 64 * 512 + 65, 2, 0);
}

TEST_F(ReduceDeviceTest, SumsDoNotDependOnWhereAnArrayLies) {
  const int64_t rows = 200, columns = 64;
  const Array<float> x = RandomArray<float>({rows * columns}, 1);
  Array<float> moved({rows * columns + 1});
  std::copy(x.values.begin(), x.values.begin() + rows * columns, moved.values.begin() + 1);
  OnDevice<float> aligned(x, device()), shifted(moved, device());
  const ArrayView a = DenseView(aligned.data(), {rows, columns}),
                  b = DenseView(shifted.data() + 1, {rows, columns});
  OnDevice<float> sum_a(Poisoned<float>({columns}), device()),
      sum_b(Poisoned<float>({columns}), device());
  cuda::ColumnSum(sum_a, a, false, device());
  cuda::ColumnSum(sum_b, b, false, device());
  ExpectSameBits(sum_a.Get(), sum_b.Get());
  OnDevice<float> dot_a(Poisoned<float>({rows}), device()),
      dot_b(Poisoned<float>({rows}), device());
  cuda::RowDot(dot_a, a, a, device());
  cuda::RowDot(dot_b, b, a, device());
  ExpectSameBits(dot_a.Get(), dot_b.Get());
  EXPECT_EQ(cuda::Sum(a, device()), cuda::Sum(b, device()));
  EXPECT_EQ(cuda::SumOfSquares(a, device()), cuda::SumOfSquares(b, device()));
}

template <class A, class B>
void CheckRowDot(Stream& device, Stream& cpu) {
  for (int64_t rows : {0, 1, 5, 70}) {
    for (int64_t columns : {0, 1, 3, 17, 64, 65, 256, 4200}) {
      if (columns > 1000 && rows > 5) continue;
      // Terms do not cancel, so the error of a sum is relative to its terms.
      Array<double> a = RandomFor<A>({rows, columns}, 1), b = RandomFor<B>({rows, columns}, 2),
                    wanted({rows});
      for (int64_t i = 0; i < a.size(); ++i) a[i] = std::fabs(a[i]), b[i] = std::fabs(b[i]);
      RowDot(wanted, a, b, cpu);
      OnDevice<A> device_a(RoundedTo<A>(a), device);
      OnDevice<B> device_b(RoundedTo<B>(b), device);
      OnDevice<float> output(Poisoned<float>({rows}), device),
          again(Poisoned<float>({rows}), device);
      cuda::RowDot(output, device_a, device_b, device);
      cuda::RowDot(again, device_a, device_b, device);
      EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<float>)
          << rows << " x " << columns;
      ExpectSameBits(output.Get(), again.Get());
    }
  }
}

TEST_F(ReduceDeviceTest, RowDotMatchesTheReferenceInEveryCombinationOfTypes) {
  CheckRowDot<float, float>(device(), cpu());
  CheckRowDot<float, BFloat16>(device(), cpu());
  CheckRowDot<BFloat16, float>(device(), cpu());
  CheckRowDot<BFloat16, BFloat16>(device(), cpu());
}

template <class O, class X>
void CheckScaleRows(Stream& device, Stream& cpu) {
  for (int64_t rows : {0, 1, 5, 70}) {
    for (int64_t columns : {0, 1, 3, 17, 64, 65, 256}) {
      Array<double> x = RandomFor<X>({rows, columns}, 1), old = RandomFor<O>({rows, columns}, 3);
      Array<double> scale = RandomFor<float>({rows}, 2);
      OnDevice<X> device_x(RoundedTo<X>(x), device);
      OnDevice<float> device_scale(RoundedTo<float>(scale), device);
      for (bool accumulate : {false, true}) {
        Array<double> wanted = old;
        ScaleRows(wanted, x, scale, accumulate, cpu);
        OnDevice<O> output(accumulate ? RoundedTo<O>(old) : Poisoned<O>({rows, columns}), device);
        cuda::ScaleRows(output, device_x, device_scale, accumulate, device);
        EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<O>)
            << rows << " x " << columns;
      }
    }
  }
}

TEST_F(ReduceDeviceTest, ScaleRowsMatchesTheReferenceInEveryCombinationOfTypes) {
  CheckScaleRows<float, float>(device(), cpu());
  CheckScaleRows<float, BFloat16>(device(), cpu());
  CheckScaleRows<BFloat16, float>(device(), cpu());
  CheckScaleRows<BFloat16, BFloat16>(device(), cpu());
}

TEST_F(ReduceDeviceTest, TotalsAreSumsInDoublePrecision) {
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{4100}, int64_t{6001},
                    kSumBlock, kSumBlock + 1, 5 * kSumBlock + 77}) {
    Array<float> x = RandomArray<float>({n}, 1);
    if (n > 2) x[1] = 1e8f, x[2] = -1e8f;  // f32 would lose this
    OnDevice<float> device_x(x, device());
    const double sum = cuda::Sum(device_x, device()),
                 squares = cuda::SumOfSquares(device_x, device());
    EXPECT_NEAR(sum, Sum(x, cpu()), 1e-7) << n;
    EXPECT_NEAR(squares, SumOfSquares(x, cpu()), 1e-12 * SumOfSquares(x, cpu())) << n;
    OnDevice<float> total(Poisoned<float>({1}), device());
    cuda::Sum(total, device_x, device());
    EXPECT_EQ(total.Get()[0], static_cast<float>(sum));
    EXPECT_EQ(cuda::Sum(device_x, device()), sum);
    EXPECT_EQ(cuda::SumOfSquares(device_x, device()), squares);
  }
}

}  // namespace
}  // namespace tandem::kernels
