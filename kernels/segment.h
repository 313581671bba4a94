// Means over segments of consecutive rows: a packed batch becomes one row per sample.
// Segment s is rows offsets[s] .. offsets[s + 1] - 1 of T packed rows. Float views share one dtype,
// F32, BF16 or F64; BF16 is summed in f32 and rounded once. Views are dense.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Both functions CHECK the offsets: they start with 0, never decrease, and end with T. On a device
// a wrong offset traps.

// output[s, :] = the sum of x[r, :] over the rows r of segment s, in ascending r, times 1 / (number
// of rows). A segment without rows gives 0. Shapes: x [T, D], offsets i64 [S + 1], output [S, D].
void SegmentMean(const ArrayView& output, const ArrayView& x, const ArrayView& offsets,
                 Stream& stream);
// grad_input[r, :] = grad_output[s, :] times 1 / (number of rows of s), for the segment s of row r.
// Shapes: grad_input [T, D], grad_output [S, D].
void SegmentMeanBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                         const ArrayView& offsets, Stream& stream);

}  // namespace tandem::kernels
