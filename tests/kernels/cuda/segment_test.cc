#include "kernels/segment.h"

#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/placed_array.h"
#include "tests/kernels/segment_offsets.h"

namespace tandem::kernels {
namespace {

using SegmentDeviceTest = DeviceTest;

// Compares with the f64 reference. `shift` moves both arrays, so that no pack may read them.
template <class T>
void CheckMean(Stream& device, Stream& cpu, const std::vector<int64_t>& lengths, int64_t columns,
               int64_t shift) {
  Array<int64_t> offsets = OffsetsOf(lengths);
  const int64_t segments = static_cast<int64_t>(lengths.size()), rows = offsets[segments];
  SCOPED_TRACE(testing::Message() << rows << " rows of " << columns << " in " << segments
                                  << ", shifted by " << shift);
  Array<double> x = RandomFor<T>({rows, columns}, 1), grad = RandomFor<T>({segments, columns}, 2),
                mean(grad.shape), grad_x(x.shape);
  SegmentMean(mean, x, offsets, cpu);
  SegmentMeanBackward(grad_x, grad, offsets, cpu);
  const OnDevice<int64_t> offsets_there(offsets, device);
  const Placed<T> x_there(RoundedTo<T>(x), shift, device),
      grad_there(RoundedTo<T>(grad), shift, device),
      mean_there(Poisoned<T>(mean.shape), shift, device),
      grad_x_there(Poisoned<T>(x.shape), shift, device);
  cuda::SegmentMean(mean_there, x_there, offsets_there, device);
  cuda::SegmentMeanBackward(grad_x_there, grad_there, offsets_there, device);
  EXPECT_LT(RelativeError(mean_there.Get(), mean), kDeviceTolerance<T>);
  EXPECT_LT(RelativeError(grad_x_there.Get(), grad_x), kDeviceTolerance<T>);
}

TEST_F(SegmentDeviceTest, MeansAndTheirGradientsMatchTheReferenceInEveryPlace) {
  for (const std::vector<int64_t>& lengths : kSegmentLengths) {
    for (const int64_t columns : {0, 1, 3, 8, 17, 64, 65}) {
      for (const int64_t shift : {0, 1}) {
        CheckMean<float>(device(), cpu(), lengths, columns, shift);
        CheckMean<BFloat16>(device(), cpu(), lengths, columns, shift);
      }
    }
  }
}

TEST_F(SegmentDeviceTest, F32HasTheBitsOfTheCpu) {
  Array<int64_t> offsets = OffsetsOf({3, 0, 300, 1});
  Array<float> x = RandomArray<float>({304, 65}, 1), mean({4, 65});
  SegmentMean(mean, x, offsets, cpu());
  const OnDevice<float> x_there(x, device()), mean_there(Poisoned<float>({4, 65}), device());
  const OnDevice<int64_t> offsets_there(offsets, device());
  cuda::SegmentMean(mean_there, x_there, offsets_there, device());
  ExpectSameBits(mean_there.Get(), mean);
}

}  // namespace
}  // namespace tandem::kernels
