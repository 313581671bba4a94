// Matrix product. f32 goes to oneDNN, one thread a call, cut over M or N by shape alone on the stream's pool, so that
// bits do not depend on the number of threads; f64 is the portable reference.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/stream.h"

namespace tandem::kernels {

// c[M, N] = op(a) op(b), plus the old c if `accumulate`; op(a) is [M, K], op(b) is [K, N], op transposes if asked.
// All dense, one dtype (F32 or F64). REQUIRES: no overlap between c and the inputs. K = 0 gives zeros.
struct GemmArgs {
  ArrayView a, b, c;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};
void Gemm(const GemmArgs& args, Stream& stream);

}  // namespace tandem::kernels
