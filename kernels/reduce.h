// Sums with a fixed order: the result depends on shapes and values, never on the number of threads.
// Views are dense, of F32 or F64, or BF16 if a comment says so. Sums of BF16 are F32.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// output[c] = sum over r of x[r, c], plus the old output if `accumulate`. x may be BF16; the output
// is then F32.
void ColumnSum(const ArrayView& output, const ArrayView& x, bool accumulate, Stream& stream);
// output[r] = sum over c of a[r, c] * b[r, c]. a and b may be BF16; the output is then F32.
void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output[r, c] = x[r, c] * scale[r], plus the old output if `accumulate`. output and x may be BF16;
// scale is then F32.
void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate,
               Stream& stream);
// Sum and SumOfSquares accumulate in f64: in blocks of kSumBlock elements, added in order.
double Sum(const ArrayView& x, Stream& stream);
// Like Sum, into an array of one element of x's dtype. The host does not wait for a device.
void Sum(const ArrayView& output, const ArrayView& x, Stream& stream);
double SumOfSquares(const ArrayView& x, Stream& stream);

inline constexpr int64_t kSumBlock = 16384;
// The sum of squares of one block; T is float or double.
// REQUIRES: n <= kSumBlock.
template <class T>
double SquaredNorm(const T* x, int64_t n);

}  // namespace tandem::kernels
