// One f32 or bf16 matrix product by oneDNN on the calling thread alone. Each thread makes the
// primitive of a shape once and keeps it. oneDNN's OpenMP threads are off, so the bits of a call
// depend on its shape and values only. Operands are dense: with strided views oneDNN leaves its
// `brg` kernels for slower ones with other bits.
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace tandem::kernels {

// c [m, n] = a [m, k] b [k, n], plus bias [n] (f32) and the old c if asked. Sums are f32.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  DType operand = DType::F32;  // type of a and b: F32 or BF16
  DType result = DType::F32;   // type of c: F32, or BF16 if the operands are BF16
  bool transpose_a = false;    // a is stored [k, m]
  bool panels = false;         // b is packed in panels (matmul_pack.h)
  bool bias = false, accumulate = false;
  bool operator==(const MatmulShape&) const = default;
};

// True if this processor has the kernels that take b in panels. If not, F32 gains nothing from
// panels, and BF16 has no product at all.
bool MatmulTakesPanels(DType operand);

// REQUIRES: m, n, k >= 1.
void OneThreadMatmul(const MatmulShape& shape, const void* a, const void* b, const float* bias,
                     void* c) noexcept;

// The name of oneDNN's implementation for a shape, for tests and benchmarks.
const char* MatmulImplementation(const MatmulShape& shape);

}  // namespace tandem::kernels
