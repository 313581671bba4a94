// Sums with a fixed order: the result depends on shapes and values, never on threads. Dense views of F32, F64 or, where a comment
// says so, BF16; sums of BF16 are F32.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// output[c] = sum over rows of x[r, c], plus the old output if `accumulate`. x may be BF16: output is F32.
void ColumnSum(const ArrayView& output, const ArrayView& x, bool accumulate, Stream& stream);
// output[r] = sum over c of a[r, c] * b[r, c]. Either of a and b may be BF16: output is F32.
void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output[r, c] = x[r, c] * scale[r], plus the old output if `accumulate`. Either of output and x may be BF16: scale is F32.
void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate, Stream& stream);
// Sum of all elements and of their squares, accumulated in f64: in blocks of kSumBlock elements, added in order.
double Sum(const ArrayView& x, Stream& stream);
// The same in an array of one element, of the dtype of x: on a device nobody waits for it.
void Sum(const ArrayView& output, const ArrayView& x, Stream& stream);
double SumOfSquares(const ArrayView& x, Stream& stream);

inline constexpr int64_t kSumBlock = 16384;
// The sum of squares of one block; T is float or double. REQUIRES: n <= kSumBlock.
template <class T>
double SquaredNorm(const T* x, int64_t n);

}  // namespace tandem::kernels
