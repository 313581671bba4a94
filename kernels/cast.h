// Conversion between storage types, for example before and after a bf16 matrix product.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// output = input, element by element. Converts between F32 and BF16 (nearest, ties to even; a NaN
// stays a NaN) or copies between equal types. Dense views of one size.
// REQUIRES: no overlap.
void Cast(const ArrayView& output, const ArrayView& input, Stream& stream);

}  // namespace tandem::kernels
