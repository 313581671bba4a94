#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // with more rows, blocks take several rounds

// Copies `width` words per row between matrices whose rows lie `to_row` and `from_row` words apart.
template <class Word>
__global__ void CopyRowsKernel(Word* to, int64_t to_row, const Word* from, int64_t from_row,
                               int64_t rows, int64_t width) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * width;
       i += step) {
    const int64_t row = i / width, column = i % width;
    to[row * to_row + column] = from[row * from_row + column];
  }
}

template <class Word>
void CopyWords(const ArrayView& output, const ArrayView& input, Stream& stream) {
  const int64_t element = static_cast<int64_t>(SizeOf(output.dtype)),
                word = static_cast<int64_t>(sizeof(Word));
  const int64_t rows = output.shape[0], width = output.shape[1] * element / word;
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, CeilDiv(rows * width, kThreads)));
  Launch(stream, {"copy_rows", output}, Grid{blocks, kThreads}, CopyRowsKernel<Word>,
         static_cast<Word*>(output.data), output.strides[0] * element / word,
         static_cast<const Word*>(input.data), input.strides[0] * element / word, rows, width);
}

// True if rows and their starts are whole words.
bool Takes(const ArrayView& view, size_t word) {
  const size_t element = SizeOf(view.dtype), width = static_cast<size_t>(view.shape[1]) * element;
  return reinterpret_cast<uintptr_t>(view.data) % word == 0 && width % word == 0 &&
         static_cast<size_t>(view.strides[0]) * element % word == 0;
}

}  // namespace

void CopyRows(const ArrayView& output, const ArrayView& input, Stream& stream) {
  if (output.num_elements() == 0) return;
  if (Takes(output, sizeof(uint4)) && Takes(input, sizeof(uint4)))
    return CopyWords<uint4>(output, input, stream);
  switch (SizeOf(output.dtype)) {
    case 8:
      return CopyWords<uint64_t>(output, input, stream);
    case 4:
      return CopyWords<uint32_t>(output, input, stream);
    case 2:
      return CopyWords<uint16_t>(output, input, stream);
    default:
      return CopyWords<uint8_t>(output, input, stream);
  }
}

}  // namespace tandem::kernels::cuda
