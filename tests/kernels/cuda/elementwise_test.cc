#include "kernels/elementwise.h"

#include <functional>

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

using ElementwiseDeviceTest = DeviceTest;

// The last two sizes fill several blocks of packs, with and without a rest.
const int64_t kSizes[] = {0, 1, 3, 17, 64, 65, 5000, 8192};

// A view that begins at element 1 of an array with one more element: no pack may read it.
template <class T>
ArrayView Shifted(const OnDevice<T>& array, int64_t count) {
  return DenseView(array.data() + 1, {count});
}

// Runs `op` on the device on arrays of types O (output), A and B, aligned and misaligned. Compares
// with the f64 result.
template <class O, class A, class B>
void ExpectAsReference(
    Stream& device, Stream& cpu,
    const std::function<void(const ArrayView&, const ArrayView&, const ArrayView&, Stream&)>& op,
    const std::function<void(const ArrayView&, const ArrayView&, const ArrayView&, Stream&)>&
        reference) {
  for (int64_t n : kSizes) {
    Array<double> a = RandomFor<A>({n}, 1, 4), b = RandomFor<B>({n}, 2, 4),
                  wanted = RandomFor<O>({n}, 3);
    OnDevice<O> output(RoundedTo<O>(wanted), device), again(RoundedTo<O>(wanted), device);
    OnDevice<A> device_a(RoundedTo<A>(a), device);
    OnDevice<B> device_b(RoundedTo<B>(b), device);
    reference(wanted, a, b, cpu);
    op(output, device_a, device_b, device);
    EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<O>) << n;
    op(again, device_a, device_b, device);
    EXPECT_EQ(std::memcmp(output.Get().values.data(), again.Get().values.data(),
                          static_cast<size_t>(n) * sizeof(O)),
              0)
        << n;
    if (n == 0) continue;
    Array<double> start = RandomFor<O>({n}, 3);
    OnDevice<O> shifted(RoundedTo<O>(start), device);
    op(Shifted(shifted, n - 1), Shifted(device_a, n - 1), Shifted(device_b, n - 1), device);
    const Array<O> found = shifted.Get(), aligned = output.Get();
    EXPECT_EQ(std::memcmp(&found[1], &aligned[1], static_cast<size_t>(n - 1) * sizeof(O)), 0) << n;
    EXPECT_EQ(AsDouble(found[0]), start[0]) << "written before the view";
  }
}

TEST_F(ElementwiseDeviceTest, AddMatchesTheReferenceInEveryCombinationOfTypes) {
  const auto op = [](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
    cuda::Add(o, a, b, s);
  };
  const auto reference = [](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
    Add(o, a, b, s);
  };
  ExpectAsReference<float, float, float>(device(), cpu(), op, reference);
  ExpectAsReference<BFloat16, BFloat16, BFloat16>(device(), cpu(), op, reference);
  ExpectAsReference<float, float, BFloat16>(device(), cpu(), op, reference);
  ExpectAsReference<float, BFloat16, float>(device(), cpu(), op, reference);
}

TEST_F(ElementwiseDeviceTest, MultiplyMatchesTheReferenceInEveryCombinationOfTypes) {
  const auto op = [](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
    cuda::Multiply(o, a, b, s);
  };
  const auto reference = [](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
    Multiply(o, a, b, s);
  };
  ExpectAsReference<float, float, float>(device(), cpu(), op, reference);
  ExpectAsReference<BFloat16, BFloat16, BFloat16>(device(), cpu(), op, reference);
  ExpectAsReference<float, float, BFloat16>(device(), cpu(), op, reference);
  ExpectAsReference<float, BFloat16, float>(device(), cpu(), op, reference);
}

template <class T>
void CheckArithmetic(Stream& device, Stream& cpu) {
  ExpectAsReference<T, T, T>(
      device, cpu,
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
        cuda::Scale(o, a, -0.75, s);
      },
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
        Scale(o, a, -0.75, s);
      });
  ExpectAsReference<T, T, T>(
      device, cpu,
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
        cuda::AddScaled(o, a, 0.75, s);
      },
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
        AddScaled(o, a, 0.75, s);
      });
  ExpectAsReference<T, T, T>(
      device, cpu,
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
        cuda::Copy(o, a, s);
      },
      [](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) { Copy(o, a, s); });
}

TEST_F(ElementwiseDeviceTest, ArithmeticMatchesTheReference) {
  CheckArithmetic<float>(device(), cpu());
  CheckArithmetic<BFloat16>(device(), cpu());
}

TEST_F(ElementwiseDeviceTest, ActivationsMatchTheReference) {
  for (Activation activation : {Activation::GELU, Activation::GELU_TANH, Activation::RELU,
                                Activation::SILU, Activation::SIGMOID}) {
    const auto check = [&](auto zero) {
      using T = decltype(zero);
      ExpectAsReference<T, T, T>(
          device(), cpu(),
          [=](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
            cuda::ActivationForward(o, a, activation, s);
          },
          [=](const ArrayView& o, const ArrayView& a, const ArrayView&, Stream& s) {
            ActivationForward(o, a, activation, s);
          });
      ExpectAsReference<T, T, T>(
          device(), cpu(),
          [=](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
            cuda::ActivationBackward(o, a, b, activation, s);
          },
          [=](const ArrayView& o, const ArrayView& a, const ArrayView& b, Stream& s) {
            ActivationBackward(o, a, b, activation, s);
          });
    };
    check(float{});
    check(BFloat16{});
  }
}

template <class T>
void CheckSwiGlu(Stream& device, Stream& cpu) {
  for (const int64_t rows : {0, 1, 3, 65}) {
    for (const int64_t columns : {1, 3, 8, 17, 64, 65, 520}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << columns);
      Array<double> x = RandomFor<T>({rows, 2 * columns}, 1, 4),
                    grad = RandomFor<T>({rows, columns}, 2);
      Array<double> y(grad.shape), grad_x(x.shape);
      SwiGluForward(y, x, cpu);
      SwiGluBackward(grad_x, grad, x, cpu);
      Array<T> first, first_grad;
      for (const int64_t shift : {0, 1}) {
        const Placed<T> x_there(RoundedTo<T>(x), shift, device),
            grad_there(RoundedTo<T>(grad), shift, device);
        const Placed<T> y_there(Poisoned<T>(y.shape), shift, device),
            grad_x_there(Poisoned<T>(x.shape), shift, device);
        cuda::SwiGluForward(y_there, x_there, device);
        cuda::SwiGluBackward(grad_x_there, grad_there, x_there, device);
        const Array<T> found = y_there.Get(), found_grad = grad_x_there.Get();
        ASSERT_LT(RelativeError(found, y), kDeviceTolerance<T>);
        ASSERT_LT(RelativeError(found_grad, grad_x), kDeviceTolerance<T>);
        if (shift == 0) first = found, first_grad = found_grad;
        ASSERT_TRUE(SameBits(found, first));
        ASSERT_TRUE(SameBits(found_grad, first_grad));
      }
    }
  }
}

TEST_F(ElementwiseDeviceTest, SwiGluMatchesTheReferenceInEveryPlace) {
  CheckSwiGlu<float>(device(), cpu());
  CheckSwiGlu<BFloat16>(device(), cpu());
}

TEST_F(ElementwiseDeviceTest, ActivationsOfLargeNumbersStayFinite) {
  Array<float> x({6});
  x.values = {-1e4f, -90.0f, -20.0f, 20.0f, 90.0f, 1e4f};
  Array<float> ones({6}, 1.0f);
  for (Activation activation :
       {Activation::GELU, Activation::GELU_TANH, Activation::RELU, Activation::SILU}) {
    OnDevice<float> device_x(x, device()), grad(ones, device());
    OnDevice<float> y(Poisoned<float>({6}), device()), slope(Poisoned<float>({6}), device());
    cuda::ActivationForward(y, device_x, activation, device());
    cuda::ActivationBackward(slope, grad, device_x, activation, device());
    const Array<float> found = y.Get(), slopes = slope.Get();
    for (int i = 0; i < 6; ++i) {
      EXPECT_NEAR(found[i], std::max(x[i], 0.0f), 1e-6 * std::fabs(x[i])) << x[i];
      EXPECT_NEAR(slopes[i], x[i] > 0 ? 1 : 0, 1e-6) << x[i];
    }
  }
}

TEST_F(ElementwiseDeviceTest, SigmoidOfLargeNumbersEndsAtZeroAndOne) {
  Array<float> x({4}), ones({4}, 1.0f);
  x.values = {-1e4f, -90.0f, 90.0f, 1e4f};
  OnDevice<float> device_x(x, device()), grad(ones, device());
  OnDevice<float> y(Poisoned<float>({4}), device()), slope(Poisoned<float>({4}), device());
  cuda::ActivationForward(y, device_x, Activation::SIGMOID, device());
  cuda::ActivationBackward(slope, grad, device_x, Activation::SIGMOID, device());
  const Array<float> found = y.Get(), slopes = slope.Get();
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(found[i], x[i] > 0 ? 1 : 0, 1e-30) << x[i];
    EXPECT_NEAR(slopes[i], 0, 1e-30) << x[i];
  }
}

TEST_F(ElementwiseDeviceTest, AnInputMayBeTheOutput) {
  const int64_t n = 5000;
  Array<float> x = RandomArray<float>({n}, 1);
  OnDevice<float> y(x, device());
  cuda::Add(y, y, y, device());
  cuda::Multiply(y, y, y, device());
  const Array<float> found = y.Get();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(found[i], 4 * x[i] * x[i]) << i;
}

template <class T>
void CheckFill(Stream& device, double value, T wanted) {
  for (int64_t n : {0, 1, 15, 16, 5000}) {
    Array<T> before = Poisoned<T>({n + 3});
    OnDevice<T> x(before, device);
    cuda::Fill(DenseView(x.data() + 1, {n}), value, device);
    Array<T> found = x.Get();
    for (int64_t i = 0; i < n + 3; ++i) {
      const T expected = i >= 1 && i <= n ? wanted : before[i];
      ASSERT_EQ(std::memcmp(&found[i], &expected, sizeof(T)), 0) << i << " of " << n;
    }
    cuda::Fill(x, value, device);
    found = x.Get();
    for (int64_t i = 0; i < n + 3; ++i)
      ASSERT_EQ(std::memcmp(&found[i], &wanted, sizeof(T)), 0) << i << " of " << n;
  }
}

TEST_F(ElementwiseDeviceTest, FillWritesEveryType) {
  CheckFill<float>(device(), 1.5, 1.5f);
  CheckFill<float>(device(), 0, 0.0f);
  CheckFill<BFloat16>(device(), 1.5, ToBFloat16(1.5f));
  CheckFill<double>(device(), 0.1, 0.1);
  CheckFill<int64_t>(device(), -3, -3);
  CheckFill<uint64_t>(device(), 7, 7);
  CheckFill<uint8_t>(device(), 200, 200);
}

template <class T, class B>
void CheckBias(Stream& device, Stream& cpu) {
  for (int64_t columns : {1, 3, 16, 17, 64, 640}) {
    const Shape shape = {2, 9, columns};
    Array<double> x = RandomFor<T>(shape, 1), bias = RandomFor<B>({columns}, 2), wanted(shape);
    AddBias(wanted, x, bias, cpu);
    OnDevice<T> output(Poisoned<T>(shape), device), device_x(RoundedTo<T>(x), device);
    OnDevice<B> device_bias(RoundedTo<B>(bias), device);
    cuda::AddBias(output, device_x, device_bias, device);
    EXPECT_LT(RelativeError(output.Get(), wanted), kDeviceTolerance<T>) << columns;
    const Placed<B> moved(RoundedTo<B>(bias), 1,
                          device);  // a part of a larger array, where no pack may be read
    cuda::AddBias(device_x, device_x, moved, device);
    ExpectSameBits(device_x.Get(), output.Get());
  }
  Array<double> bias = RandomFor<B>({5}, 2);
  OnDevice<B> device_bias(RoundedTo<B>(bias), device);
  OnDevice<T> empty(Poisoned<T>({0, 5}), device), no_columns(Poisoned<T>({5, 0}), device);
  cuda::AddBias(empty, empty, device_bias, device);
  cuda::AddBias(no_columns, no_columns, DenseView(device_bias.data(), {0}), device);
}

TEST_F(ElementwiseDeviceTest, BiasIsAddedToEveryRowOfAllLeadingDims) {
  CheckBias<float, float>(device(), cpu());
  CheckBias<float, BFloat16>(device(), cpu());
  CheckBias<BFloat16, float>(device(), cpu());
  CheckBias<BFloat16, BFloat16>(device(), cpu());
}

TEST_F(ElementwiseDeviceTest, AddWhereEqualAddsInPairsOfOneNumber) {
  for (const int64_t rows : {0, 1, 3, 700}) {
    for (const int64_t columns : {0, 1, 3, 8, 17, 64}) {
      Array<float> x = RandomArray<float>({rows, columns}, 1), wanted(x.shape);
      Array<int64_t> row_id({rows}), column_id({columns});
      for (int64_t r = 0; r < rows; ++r) row_id[r] = r % 6 - 2;
      for (int64_t c = 0; c < columns; ++c) column_id[c] = c % 9 - 2;
      AddWhereEqual(wanted, x, row_id, column_id, -1e30, cpu());
      const OnDevice<float> device_x(x, device()), output(Poisoned<float>(x.shape), device());
      const OnDevice<int64_t> device_rows(row_id, device()), device_columns(column_id, device());
      cuda::AddWhereEqual(output, device_x, device_rows, device_columns, -1e30, device());
      ExpectSameBits(output.Get(), wanted);
      const Placed<float> moved(x, 1, device());
      cuda::AddWhereEqual(output, moved, device_rows, device_columns, -1e30, device());
      ExpectSameBits(output.Get(), wanted);
    }
  }
}

TEST_F(ElementwiseDeviceTest, CastRoundsToTheNearestEven) {
  for (int64_t n : kSizes) {
    Array<float> x = RandomArray<float>({n}, 1, 100);
    if (n > 16) {
      x[0] = 1.00390625f;  // halfway between two bf16: to the even one, below
      x[1] = 1.01171875f;  // and above
      x[16] = std::numeric_limits<float>::quiet_NaN();
    }
    OnDevice<float> from(x, device()), back(Poisoned<float>({n}), device());
    OnDevice<BFloat16> to(Poisoned<BFloat16>({n}), device());
    cuda::Cast(to, from, device());
    cuda::Cast(back, to, device());
    const Array<BFloat16> found = to.Get();
    const Array<float> widened = back.Get();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(found[i].bits, ToBFloat16(x[i]).bits) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(widened[i]), uint32_t{found[i].bits} << 16) << i;
    }
    if (n < 2) continue;
    cuda::Cast(Shifted(to, n - 1), Shifted(from, n - 1), device());
    cuda::Cast(from, back, device());  // equal types: a copy
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(to.Get()[i].bits, found[i].bits) << i;
    EXPECT_EQ(std::memcmp(from.Get().values.data(), widened.values.data(),
                          static_cast<size_t>(n) * sizeof(float)),
              0);
    if (n > 100) break;
  }
}

TEST_F(ElementwiseDeviceTest, CopyMovesEveryType) {
  Array<int64_t> x = Consecutive(1000);
  OnDevice<int64_t> from(x, device()), to(Poisoned<int64_t>({1000}), device());
  cuda::Copy(to, from, device());
  ExpectSameBits(to.Get(), x);
}

}  // namespace
}  // namespace tandem::kernels
