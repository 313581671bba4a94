// One f32 or bf16 matrix product by oneDNN on the calling thread alone. The primitive of a shape is made once per thread and kept,
// and oneDNN's OpenMP threads are switched off for the thread, so that the bits of a call depend on its shape and values only.
// Operands are dense: a strided view makes oneDNN fall from its `brg` kernels to a slower one with other bits.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace tandem::kernels {

// c [m, n] = a [m, k] b [k, n], plus bias [n] (f32) and the old c if asked; all sums are f32's.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  DType operand = DType::F32;  // of a and b: F32 or BF16
  DType result = DType::F32;   // of c: F32, or BF16 if the operands are
  bool transpose_a = false;    // a is stored [k, m]
  bool panels = false;         // b is in panels (matmul_pack.h), not in rows
  bool bias = false, accumulate = false;
  bool operator==(const MatmulShape&) const = default;
};

// Whether this processor has the kernels that want b in panels. If not, panels are no use for F32, and BF16 has no product at all.
bool MatmulTakesPanels(DType operand);

// REQUIRES: m, n, k >= 1.
void OneThreadMatmul(const MatmulShape& shape, const void* a, const void* b, const float* bias, void* c) noexcept;

// The name of oneDNN's implementation for a shape, for tests and benchmarks.
const char* MatmulImplementation(const MatmulShape& shape);

}  // namespace tandem::kernels
