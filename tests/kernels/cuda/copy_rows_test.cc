#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

using CopyRowsTest = DeviceTest;

// Returns columns [begin, begin + width) of a matrix.
template <class T>
ArrayView Columns(const ArrayView& matrix, int64_t begin, int64_t width) {
  return ArrayView(matrix.as<T>() + begin, matrix.dtype, Shape{matrix.shape[0], width},
                   Shape{matrix.shape[1], 1});
}

template <class T>
Array<T> Numbers(Shape shape) {
  Array<T> a(shape);
  for (int64_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_same_v<T, BFloat16>)
      a[i].bits = static_cast<uint16_t>(i % 30000);
    else
      a[i] = static_cast<T>(i);
  }
  return a;
}

template <class T>
void ExpectColumnsCopied(Stream& stream, int64_t rows, int64_t from_width, int64_t from_begin,
                         int64_t to_width, int64_t to_begin, int64_t width) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << width << " x " << sizeof(T)
                                  << " bytes, from " << from_begin << " to " << to_begin);
  const Array<T> from = Numbers<T>({rows, from_width});
  Array<T> wanted = Poisoned<T>({rows, to_width});
  OnDevice<T> source(from, stream), target(wanted, stream);
  cuda::CopyRows(Columns<T>(target.view(), to_begin, width),
                 Columns<T>(source.view(), from_begin, width), stream);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c)
      wanted[r * to_width + to_begin + c] = from[r * from_width + from_begin + c];
  }
  ExpectSameBits(target.Get(), wanted);
}

TEST_F(CopyRowsTest, ColumnsComeAcrossAndNothingElseChanges) {
  for (const int64_t rows : {0, 1, 3, 65}) {
    for (const int64_t width : {0, 1, 3, 16, 64}) {
      ExpectColumnsCopied<float>(device(), rows, 80, 4, 72, 8, width);
      ExpectColumnsCopied<float>(device(), rows, 67, 1, 70, 5, width);
      ExpectColumnsCopied<BFloat16>(device(), rows, 65, 1, 64, 0, width);
      ExpectColumnsCopied<int64_t>(device(), rows, 66, 2, 64, 0, width);
      ExpectColumnsCopied<uint8_t>(device(), rows, 66, 1, 65, 1, width);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
