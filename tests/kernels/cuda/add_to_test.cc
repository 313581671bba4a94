#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

using AddToTest = DeviceTest;

template <class T>
Array<T> Numbers(int64_t count, uint64_t factor) {
  Array<T> a(Shape{count});
  for (int64_t i = 0; i < count; ++i)
    a[i] = static_cast<T>(static_cast<uint64_t>(i + 1) * factor % 1009);
  return a;
}

// Covers arrays that begin where packs may be read, arrays that do not, and integer sums that wrap.
template <class T>
void ExpectSums(Stream& stream) {
  for (const int64_t count : {0, 1, 3, 16, 17, 1003, 300001}) {
    for (const auto& [shift, other_shift] : {std::pair<int64_t, int64_t>(0, 0), {1, 1}, {0, 3}}) {
      SCOPED_TRACE(testing::Message() << count << " x " << sizeof(T) << " bytes, " << shift
                                      << " and " << other_shift << " behind");
      Array<T> wanted = Numbers<T>(count, 7);
      const Array<T> x = Numbers<T>(count, 0xfffffffff7u);
      const Placed<T> sum(wanted, shift, stream), other(x, other_shift, stream);
      const ArrayView to = sum, from = other;
      ASSERT_TRUE(tandem::cuda::AddTo(to.dtype, to.data, from.data, count, kCudaDevice.index,
                                      stream.queue())
                      .ok());
      for (int64_t i = 0; i < count; ++i) wanted[i] = static_cast<T>(wanted[i] + x[i]);
      EXPECT_TRUE(SameBits(sum.Get(), wanted));
      EXPECT_TRUE(SameBits(other.Get(), x));
    }
  }
}

TEST_F(AddToTest, ArraysOfEveryTypeAddUp) {
  ExpectSums<float>(device());
  ExpectSums<double>(device());
  ExpectSums<int64_t>(device());
  ExpectSums<uint64_t>(device());
  ExpectSums<uint8_t>(device());
}

}  // namespace
}  // namespace tandem::kernels
