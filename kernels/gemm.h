// Matrix product. f32 and bf16 go to oneDNN, one thread a call, cut by shape alone on the stream's pool, so that bits do not
// depend on the number of threads; f64 is the portable reference.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"
#include "kernels/elementwise.h"

namespace tandem::kernels {

// c[M, N] = op(a) op(b), plus bias[N] in every row if there is one, plus the old c if `accumulate`; op(a) is [M, K], op(b) is
// [K, N], op transposes if asked. All dense. a, b and c are F32, or F64, or a and b are BF16 and c is F32 or BF16, which is rounded
// once from f32 sums. bias is of c's type; beside a BF16 c it may be F32 too, which a CUDA device adds to what was rounded, in a pass of
// its own; where rows are no multiple of 16 bytes, it may round before it adds a BF16 bias as well. REQUIRES: no overlap between c and the
// inputs; accumulate only into F32 or F64. K = 0 gives empty sums.
struct GemmArgs {
  ArrayView a, b, c;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  ArrayView bias = {};
};
void Gemm(const GemmArgs& args, Stream& stream);

// The same, and activated[M, N] = activation(c), of c's type. Where a CUDA device's product does both, it takes the function of the
// sums before they are rounded to c. REQUIRES: not `accumulate`.
void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation, Stream& stream);

}  // namespace tandem::kernels
