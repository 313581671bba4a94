// Products of many rows with one matrix that was packed for oneDNN: packed once, then shared by all blocks of rows. The cut
// into blocks is a function of the shape alone. f32 and bf16. Thread rule: as their stream.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/cpu/matmul_pack.h"
#include "kernels/cpu/onednn_matmul.h"
#include "kernels/cpu/parallel.h"

namespace tandem::kernels {

// Rows differ in number from step to step; what is left over a multiple of this is padded, so that few primitives serve all.
inline constexpr int64_t kRowQuantum = 16;

// b [k, n] in somebody's memory, in panels or in rows.
template <class T>
struct PackedMatrix {
  const T* data = nullptr;
  int64_t k = 0, n = 0;
  bool panels = false;
};

// Elements of memory that packing b [k, n] takes.
template <class T>
int64_t PackedSize(int64_t k, int64_t n) {
  return RoundUp(k, kPanelDepth<T>) * RoundUp(n, kPanelColumns);
}

// Packs b with zeros below it to `depth` rows, on the stream's pool: into panels if the processor takes them. REQUIRES: depth >= b.k.
template <class T>
PackedMatrix<T> Pack(const StoredMatrix<T>& b, int64_t depth, T* memory, Stream& stream);

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

// The matmul of these operands on the calling thread.
template <class T>
void MultiplyHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c) {
  OneThreadMatmul({.m = m, .n = b.n, .k = b.k, .operand = DTypeOf<T>(), .result = c.dtype, .panels = b.panels,
                   .bias = c.bias != nullptr, .accumulate = c.accumulate},
                  a, b.data, c.bias, c.data);
}

// The same with a remainder of rows padded: uses the scratch TASK_B and TASK_C.
template <class T>
void MultiplyRowsHere(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c);

// c = a [m, k] b on the stream's pool.
template <class T>
void MultiplyRows(const T* a, int64_t m, const PackedMatrix<T>& b, const ProductTarget& c, Stream& stream);

}  // namespace tandem::kernels
