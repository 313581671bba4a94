// Between storage types: what a matrix product wants its operands in, and back.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// output = input, element by element, between F32 and BF16 (to the nearest, ties to even; a NaN stays one) or between equal types.
// Dense views of one size. REQUIRES: no overlap.
void Cast(const ArrayView& output, const ArrayView& input, Stream& stream);

}  // namespace tandem::kernels
