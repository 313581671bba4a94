#include "kernels/cpu/matmul/packed_matmul.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/vector/scratch.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kPackedDepth = 512;  // depths of a panel that one task packs
constexpr int64_t kMinRows = 64, kMinRowsOfLarge = 256, kMinRowsOfDeep = 1024, kMaxRows = 4096;
constexpr int64_t kDeep = 4096;  // from this k on, oneDNN chooses better blocks for more rows
constexpr int64_t kBytesOfRows = 512 << 10;  // rows of a that stay in L2 beside b's
constexpr int64_t kLargeBytes = 1 << 20;  // L2 does not keep a larger packed matrix between blocks
template <class T>
constexpr int64_t kTaskMultiplyAdds = sizeof(T) == 2 ? 1 << 25 : 1 << 23;

// Packs [k, n] as rows, for processors without panel kernels.
template <class T>
PackedMatrix<T> PackAsRows(const StoredMatrix<T>& b, int64_t depth, T* memory, Stream& stream) {
  if (!b.transposed && b.stride == b.n && depth == b.k)
    return {b.data, b.k, b.n, PackedLayout::ROWS};
  const int64_t row = b.transposed ? 1 : b.stride, column = b.transposed ? b.stride : 1;
  ParallelRows(stream, depth, b.n, [&](int64_t begin, int64_t end) {
    for (int64_t d = begin; d < end; ++d) {
      for (int64_t c = 0; c < b.n; ++c)
        memory[d * b.n + c] = d < b.k ? b.data[d * row + c * column] : T{};
    }
  });
  return {memory, depth, b.n, PackedLayout::ROWS};
}

PackedMatrix<float> PackAsPieces(const StoredMatrix<float>& b, int64_t depth, float* memory,
                                 Stream& stream) {
  auto* pieces = reinterpret_cast<BFloat16*>(memory);
  stream.pool().ParallelFor((b.n + kSplitUnit - 1) / kSplitUnit, [&](int64_t group) {
    const int64_t first = group * kSplitUnit;
    SplitOperand(SplitSide::B, b, first, std::min(kSplitUnit, b.n - first), depth,
                 pieces + SplitSize(first, depth));
  });
  return {memory, depth, b.n, PackedLayout::PIECES};
}

// Blocks of a's rows and depths are split into pieces, then each block is multiplied with all of b.
void MultiplyPieces(const float* a, int64_t m, const PackedMatrix<float>& b,
                    const ProductTarget& c) {
  const int64_t most = std::min(b.k, kSplitDepth), b_step = SplitSize(kSplitUnit, b.k);
  const int64_t rows = kBytesOfRows / static_cast<int64_t>(sizeof(BFloat16)) /
                       SplitSize(kSplitUnit, most) * kSplitUnit;
  BFloat16* pieces = Scratch<BFloat16>(ScratchSlot::LIBRARY, SplitSize(std::min(rows, m), most));
  for (int64_t i = 0; i < m; i += rows) {
    const int64_t count = std::min(rows, m - i);
    ForSplitDepths(b.k, [&](int64_t d, int64_t depth) {
      SplitOperand(SplitSide::A, {a + d, depth, m, b.k, /*transposed=*/true}, i, count, depth,
                   pieces);
      SplitProduct(count, b.n, depth, pieces,
                   reinterpret_cast<const BFloat16*>(b.data) + SplitSize(kSplitUnit, d), b_step,
                   {.c = static_cast<float*>(c.data) + i * b.n,
                    .c_row = b.n,
                    .bias = d == 0 ? c.bias : nullptr,
                    .accumulate = c.accumulate || d > 0});
    });
  }
}

}  // namespace

template <class T>
PackedLayout LayoutOf(bool split) {
  if (split) return PackedLayout::PIECES;
  return MatmulTakesPanels(DTypeOf<T>()) ? PackedLayout::PANELS : PackedLayout::ROWS;
}

template <class T>
PackedMatrix<T> Pack(const StoredMatrix<T>& b, int64_t depth, PackedLayout layout, T* memory,
                     Stream& stream) {
  if constexpr (std::is_same_v<T, float>) {
    if (layout == PackedLayout::PIECES) return PackAsPieces(b, depth, memory, stream);
  }
  if (layout == PackedLayout::ROWS) return PackAsRows(b, depth, memory, stream);
  const int64_t padded = RoundUp(depth, kPanelDepth<T>),
                pieces = (padded + kPackedDepth - 1) / kPackedDepth;
  stream.pool().ParallelFor((b.n + kPanelColumns - 1) / kPanelColumns * pieces, [&](int64_t task) {
    const int64_t panel = task / pieces, begin = task % pieces * kPackedDepth;
    PackPanel(b, panel, begin, std::min(padded, begin + kPackedDepth),
              memory + panel * padded * kPanelColumns);
  });
  return {memory, depth, b.n, PackedLayout::PANELS};
}

template <class T>
void MultiplyHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c) {
  if constexpr (std::is_same_v<T, float>) {
    if (b.layout == PackedLayout::PIECES) return MultiplyPieces(a, m, b, c);
  }
  OneThreadMatmul({.m = m,
                   .n = b.n,
                   .k = b.k,
                   .operand = DTypeOf<T>(),
                   .result = c.dtype,
                   .panels = b.layout == PackedLayout::PANELS,
                   .bias = c.bias != nullptr,
                   .accumulate = c.accumulate},
                  a, b.data, c.bias, c.data);
}

template <class T>
void MultiplyRowsHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c) {
  // Pieces come in whole groups of rows.
  if (b.layout == PackedLayout::PIECES) return MultiplyHere(a, m, b, c);
  const int64_t whole = m / kRowQuantum * kRowQuantum, rest = m - whole;
  if (whole > 0) MultiplyHere(a, whole, b, c);
  if (rest == 0) return;
  const size_t row_bytes = static_cast<size_t>(b.n) * SizeOf(c.dtype);
  const ProductTarget target = c.Rows(whole, b.n);
  T* padded_a = Scratch<T>(ScratchSlot::TASK_B, kRowQuantum * b.k);
  std::copy_n(a + whole * b.k, rest * b.k, padded_a);
  std::fill_n(padded_a + rest * b.k, (kRowQuantum - rest) * b.k, T{});
  ProductTarget padded_c = c;
  padded_c.data = Scratch<char>(ScratchSlot::TASK_C, kRowQuantum * static_cast<int64_t>(row_bytes));
  if (c.accumulate) {  // padding rows are added to, so they must be numbers
    std::memset(padded_c.data, 0, kRowQuantum * row_bytes);
    std::memcpy(padded_c.data, target.data, static_cast<size_t>(rest) * row_bytes);
  }
  MultiplyHere(padded_a, kRowQuantum, b, padded_c);
  std::memcpy(target.data, padded_c.data, static_cast<size_t>(rest) * row_bytes);
}

template <class T>
void MultiplyRows(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c,
                  Stream& stream) {
  const bool in_pieces = b.layout == PackedLayout::PIECES;
  const int64_t quantum = in_pieces ? kSplitUnit : kRowQuantum;
  const bool deep = !in_pieces && b.k >= kDeep,
             large = b.n * b.k * static_cast<int64_t>(sizeof(T)) > kLargeBytes;
  const int64_t min_rows = deep    ? kMinRowsOfDeep
                           : large ? kMinRowsOfLarge
                                   : kMinRows,
                min_tasks = deep ? 2 : 4;
  const int64_t rows =
      std::clamp(RoundUp(kTaskMultiplyAdds<T> / (b.n * b.k), quantum), min_rows, kMaxRows);
  const int64_t block =
      std::min(rows, std::max(kMinRows, RoundUp((m + min_tasks - 1) / min_tasks, quantum)));
  stream.pool().ParallelFor((m + block - 1) / block, [&](int64_t task) {
    const int64_t begin = task * block;
    MultiplyRowsHere(a + begin * b.k, std::min(block, m - begin), b, c.Rows(begin, b.n));
  });
}

template PackedLayout LayoutOf<float>(bool);
template PackedLayout LayoutOf<BFloat16>(bool);
template PackedMatrix<float> Pack(const StoredMatrix<float>&, int64_t, PackedLayout, float*,
                                  Stream&);
template PackedMatrix<BFloat16> Pack(const StoredMatrix<BFloat16>&, int64_t, PackedLayout,
                                     BFloat16*, Stream&);
template void MultiplyHere(const float*, int64_t, const PackedMatrix<float>&, const ProductTarget&);
template void MultiplyHere(const BFloat16*, int64_t, const PackedMatrix<BFloat16>&,
                           const ProductTarget&);
template void MultiplyRowsHere(const float*, int64_t, const PackedMatrix<float>&,
                               const ProductTarget&);
template void MultiplyRowsHere(const BFloat16*, int64_t, const PackedMatrix<BFloat16>&,
                               const ProductTarget&);
template void MultiplyRows(const float*, int64_t, const PackedMatrix<float>&, const ProductTarget&,
                           Stream&);
template void MultiplyRows(const BFloat16*, int64_t, const PackedMatrix<BFloat16>&,
                           const ProductTarget&, Stream&);

}  // namespace tandem::kernels
