// Products of many rows with one matrix that was packed, for oneDNN or in pieces: packed once, then shared by all blocks of rows. The cut
// into blocks is a function of the shape alone. f32 and bf16. Thread rule: as their stream.
#pragma once

#include "kernels/memory/stream.h"
#include "kernels/cpu/matmul/matmul_pack.h"
#include "kernels/cpu/matmul/onednn_matmul.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/matmul/split_matmul.h"

namespace tandem::kernels {

// Rows differ in number from step to step; what is left over a multiple of this is padded, so that few primitives serve all.
inline constexpr int64_t kRowQuantum = 16;

// How a matrix lies in memory: dense rows, oneDNN's panels (matmul_pack.h), or, f32 only, pieces (split_matmul.h).
enum class PackedLayout { ROWS, PANELS, PIECES };

// b [k, n] in somebody's memory.
template <class T>
struct PackedMatrix {
  const T* data = nullptr;
  int64_t k = 0, n = 0;
  PackedLayout layout = PackedLayout::ROWS;
};

// The layout that products with b are fastest in: PIECES if `split`, else PANELS if the processor takes them.
template <class T>
PackedLayout LayoutOf(bool split);

// Elements of memory that packing b [k, n] takes.
template <class T>
int64_t PackedSize(int64_t k, int64_t n, PackedLayout layout) {
  if (layout == PackedLayout::PIECES) return SplitSize(n, k) * static_cast<int64_t>(sizeof(BFloat16)) / static_cast<int64_t>(sizeof(T));
  return RoundUp(k, kPanelDepth<T>) * RoundUp(n, kPanelColumns);
}

// Packs b with zeros below it to `depth` rows, on the stream's pool. REQUIRES: depth >= b.k.
template <class T>
PackedMatrix<T> Pack(const StoredMatrix<T>& b, int64_t depth, PackedLayout layout, T* memory, Stream& stream);

// Where a product goes: c [m, n] dense, F32 or, with BF16 operands, BF16; bias may be null.
struct ProductTarget {
  void* data = nullptr;
  DType dtype = DType::F32;
  const float* bias = nullptr;
  bool accumulate = false;

  // From row `begin` on, of rows of n elements.
  ProductTarget Rows(int64_t begin, int64_t n) const {
    ProductTarget rows = *this;
    rows.data = static_cast<char*>(data) + static_cast<size_t>(begin * n) * SizeOf(dtype);
    return rows;
  }
};

// The matmul of these operands on the calling thread. Pieces of a are made in the scratch LIBRARY.
template <class T>
void MultiplyHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c);

// The same with a remainder of rows padded: uses the scratch TASK_B and TASK_C.
template <class T>
void MultiplyRowsHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c);

// c = a [m, k] b on the stream's pool.
template <class T>
void MultiplyRows(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c, Stream& stream);

}  // namespace tandem::kernels
