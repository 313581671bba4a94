// Products of many rows with one packed matrix, in oneDNN's layout or in pieces. The matrix is
// packed once and shared by all blocks of rows. The split into blocks depends on the shape alone.
// f32 and bf16.
// Thread rule: the stream's.
#pragma once

#include "kernels/cpu/matmul/matmul_pack.h"
#include "kernels/cpu/matmul/onednn_matmul.h"
#include "kernels/cpu/matmul/split_matmul.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// The number of rows differs from step to step. Padding the remainder to a multiple of kRowQuantum
// keeps the number of primitives small.
inline constexpr int64_t kRowQuantum = 16;

// The layout of a matrix: dense rows, oneDNN's panels (matmul_pack.h), or pieces (split_matmul.h;
// f32 only).
enum class PackedLayout { ROWS, PANELS, PIECES };

// b [k, n] in memory that somebody else owns.
template <class T>
struct PackedMatrix {
  const T* data = nullptr;
  int64_t k = 0, n = 0;
  PackedLayout layout = PackedLayout::ROWS;
};

// The fastest layout for products with b: PIECES if `split`, else PANELS if the processor takes
// them, else ROWS.
template <class T>
PackedLayout LayoutOf(bool split);

// The number of elements that packing b [k, n] takes.
template <class T>
int64_t PackedSize(int64_t k, int64_t n, PackedLayout layout) {
  if (layout == PackedLayout::PIECES)
    return SplitSize(n, k) * static_cast<int64_t>(sizeof(BFloat16)) /
           static_cast<int64_t>(sizeof(T));
  return RoundUp(k, kPanelDepth<T>) * RoundUp(n, kPanelColumns);
}

// Packs b on the stream's pool, with zeros below it up to `depth` rows.
// REQUIRES: depth >= b.k.
template <class T>
PackedMatrix<T> Pack(const StoredMatrix<T>& b, int64_t depth, PackedLayout layout, T* memory,
                     Stream& stream);

// The target of a product: c [m, n], dense, F32, or BF16 with BF16 operands. bias may be null.
struct ProductTarget {
  void* data = nullptr;
  DType dtype = DType::F32;
  const float* bias = nullptr;
  bool accumulate = false;

  // The target from row `begin` on; rows have n elements.
  ProductTarget Rows(int64_t begin, int64_t n) const {
    ProductTarget rows = *this;
    rows.data = static_cast<char*>(data) + static_cast<size_t>(begin * n) * SizeOf(dtype);
    return rows;
  }
};

// Multiplies on the calling thread. Pieces of a are made in scratch LIBRARY.
template <class T>
void MultiplyHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c);

// Like MultiplyHere, but pads a remainder of rows. Uses scratch TASK_B and TASK_C.
template <class T>
void MultiplyRowsHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c);

// c = a [m, k] b, on the stream's pool.
template <class T>
void MultiplyRows(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c,
                  Stream& stream);

}  // namespace tandem::kernels
