// Rotary position embedding (Su et al. 2021): turns each head's pairs of elements (i, i + D / 2) by
// an angle that grows with the row's position. So products of queries and keys depend on the
// distance of their positions alone.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Dense views. The first `turned` of H heads are turned, the others copied.
// REQUIRES: output is input, or does not overlap it; positions lie below the table's rows.
struct RotateArgs {
  ArrayView input, output;  // [T, H, D] of one float type, D even
  ArrayView positions;      // i64 [T]
  ArrayView table;          // [N, D]: cosines | sines of position n; F64 with F64, else F32
  int64_t turned = 0;
  bool back = false;  // turns by the negative angle: the gradient of a turn
};
void Rotate(const RotateArgs& args, Stream& stream);

}  // namespace tandem::kernels
