// Gathers rows of a table by index, and scatters row gradients back deterministically.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// output[r, :] = table[index[r], :]. Shapes: table [N, D], index i64 [R]. CHECKs every index.
void GatherRows(const ArrayView& output, const ArrayView& table, const ArrayView& index,
                Stream& stream);

// Where the rows `index` i64 [R] of a table lie in a part of it, rows first .. first + count - 1.
// here[r] = index[r] - first, factor[r] = 1; of a row that is elsewhere 0 and 0. here: i64 [R];
// factor: F32 or F64 [R].
void LocateRows(const ArrayView& here, const ArrayView& factor, const ArrayView& index,
                int64_t first, int64_t count, Stream& stream);

// output[i, :] = sum of rows[r, :] over all r with index[r] == i, in ascending r. A stable sort of
// the index and a sum per segment replace atomics. Rows of output without an r become 0.
// `accumulate` adds to the old output instead. rows may be BF16; the output is F32.
void ScatterAddRows(const ArrayView& output, const ArrayView& rows, const ArrayView& index,
                    bool accumulate, Stream& stream);

}  // namespace tandem::kernels
