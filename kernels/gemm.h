// Matrix product. On a CPU, f32 and bf16 go to oneDNN, and f64 to the portable reference. oneDNN
// runs one thread a call. The stream's pool splits the product by shape alone, so bits do not
// depend on the number of threads.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/elementwise.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// c[M, N] = op(a) op(b), plus bias[N] in every row if given, plus the old c if `accumulate`. op(a)
// is [M, K] and op(b) is [K, N]; op transposes if asked. All views are dense. K = 0 gives empty
// sums.
// Types: a, b and c are all F32 or all F64; or a and b are BF16 and c is F32 or BF16. A BF16 c is
// rounded once from f32 sums.
// bias has c's type, or is F32 beside a BF16 c. A CUDA device adds an F32 bias to the rounded c in
// a second pass. A CUDA device may also round before it adds a BF16 bias, if rows are no multiple
// of 16 bytes.
// REQUIRES: c does not overlap the inputs; `accumulate` only into F32 or F64.
struct GemmArgs {
  ArrayView a, b, c;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  ArrayView bias = {};
};
void Gemm(const GemmArgs& args, Stream& stream);

// Like Gemm, and activated[M, N] = activation(c), of c's type. A CUDA device that fuses both
// applies the activation to the f32 sums, before they are rounded to c.
// REQUIRES: not `accumulate`.
void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation,
                  Stream& stream);

}  // namespace tandem::kernels
