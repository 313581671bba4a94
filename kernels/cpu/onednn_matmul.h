// One f32 matrix product by oneDNN on the calling thread alone. The primitive of a shape is made once per thread and kept, and
// oneDNN's OpenMP threads are switched off for the thread, so that the bits of a call depend on its shape and values only.
// Operands are dense: a strided view makes oneDNN fall from its `brg` kernels to a slower one with other bits.
#pragma once

#include <cstdint>

namespace tandem::kernels {

// c [m, n] = op(a) [m, k] op(b) [k, n], plus the old c if `accumulate`; a transposed operand is stored as [k, m] or [n, k].
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  bool operator==(const MatmulShape&) const = default;
};

// REQUIRES: m, n, k >= 1.
void OneThreadMatmul(const MatmulShape& shape, const float* a, const float* b, float* c) noexcept;

// The name of oneDNN's implementation for a shape, for tests and benchmarks.
const char* MatmulImplementation(const MatmulShape& shape);

}  // namespace tandem::kernels
