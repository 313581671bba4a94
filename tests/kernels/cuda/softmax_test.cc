#include "kernels/softmax.h"

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

class CudaSoftmaxTest : public DeviceTest {};

// Covers rows of all kinds of team, odd rows and whole packs. The last four do not fit in a block's
// registers.
// The last two do not fit in a block's shared memory either.
struct Size {
  int64_t rows, columns;
};
const Size kSizes[] = {{0, 5},     {3, 0},    {1, 1},     {3, 3},    {17, 17},  {65, 64},
                       {33, 65},   {5, 128},  {5, 132},   {9, 512},  {4, 255},  {4, 257},
                       {3, 1000},  {3, 2048}, {300, 4},   {2, 4100}, {2, 4099}, {1, 8200},
                       {2, 12000}, {1, 5001}, {1, 33000}, {1, 29001}};

Array<float> Softmax(const Array<double>& x, int64_t shift, Stream& device) {
  const Placed<float> input(RoundedTo<float>(x), shift, device),
      output(Poisoned<float>(x.shape), shift, device);
  cuda::SoftmaxForward(output, input, device);
  return output.Get();
}

Array<float> Gradient(const Array<double>& grad_output, const Array<float>& output, int64_t shift,
                      Stream& device) {
  const Placed<float> grad(RoundedTo<float>(grad_output), shift, device), y(output, shift, device),
      grad_input(Poisoned<float>(output.shape), shift, device);
  cuda::SoftmaxBackward(grad_input, grad, y, device);
  return grad_input.Get();
}

TEST_F(CudaSoftmaxTest, MatchesF64ForEverySize) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.columns);
    Array<double> x = RandomFor<float>({size.rows, size.columns}, 1, 5),
                  grad_output = RandomFor<float>(x.shape, 2), y(x.shape), grad(x.shape);
    SoftmaxForward(y, x, cpu());
    const Array<float> found = Softmax(x, 0, device());
    EXPECT_LT(RelativeError(found, y), kDeviceTolerance<float>);
    Array<double> rounded = Widened(found);
    SoftmaxBackward(grad, grad_output, rounded, cpu());
    // A row of one column has no gradient: the reference's value is rounding.
    if (size.columns != 1) {
      EXPECT_LT(RelativeError(Gradient(grad_output, found, 0, device()), grad),
                kDeviceTolerance<float>);
    }
  }
}

TEST_F(CudaSoftmaxTest, HasTheSameBitsInTwoRunsAndInMisalignedPlaces) {
  for (const Size& size :
       {Size{33, 64}, Size{7, 77}, Size{3, 1028}, Size{2, 12000}, Size{1, 33000}}) {
    SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.columns);
    const Array<double> x = RandomFor<float>({size.rows, size.columns}, 1, 5),
                        grad_output = RandomFor<float>(x.shape, 2);
    const Array<float> once = Softmax(x, 0, device()),
                       grad_once = Gradient(grad_output, once, 0, device());
    for (const int64_t shift : {0, 1}) {
      EXPECT_TRUE(SameBits(Softmax(x, shift, device()), once));
      EXPECT_TRUE(SameBits(Gradient(grad_output, once, shift, device()), grad_once));
    }
  }
}

TEST_F(CudaSoftmaxTest, MinusInfinityGivesZeroWhereverItStands) {
  for (const int64_t columns : {8, 300, 12000}) {
    Array<double> x = RandomFor<float>({3, columns}, 1, 5), y(x.shape);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (i % 7 != 3) x[i] = -std::numeric_limits<double>::infinity();
    }
    SoftmaxForward(y, x, cpu());
    const Array<float> found = Softmax(x, 0, device());
    EXPECT_LT(RelativeError(found, y), kDeviceTolerance<float>);
    EXPECT_EQ(found[0], 0.0f);
  }
}

TEST_F(CudaSoftmaxTest, LargeValuesDoNotOverflow) {
  Array<double> x = RandomFor<float>({2, 40}, 1, 1000), y(x.shape);
  x[3] = -3e38;
  x[7] = 3e38;
  SoftmaxForward(y, x, cpu());
  EXPECT_LT(RelativeError(Softmax(x, 0, device()), y), kDeviceTolerance<float>);
}

TEST_F(CudaSoftmaxTest, ResultsMayReplaceInputs) {
  for (const int64_t columns : {64, 12000, 33000}) {
    const Array<double> x = RandomFor<float>({2, columns}, 1, 5),
                        grad_output = RandomFor<float>(x.shape, 2);
    const OnDevice<float> y(RoundedTo<float>(x), device()),
        grad(RoundedTo<float>(grad_output), device());
    cuda::SoftmaxForward(y, y, device());
    const Array<float> apart = Softmax(x, 0, device());
    EXPECT_TRUE(SameBits(y.Get(), apart));
    cuda::SoftmaxBackward(grad, grad, y, device());
    EXPECT_TRUE(SameBits(grad.Get(), Gradient(grad_output, apart, 0, device())));
  }
}

}  // namespace
}  // namespace tandem::kernels
