// Bags of rows made one row each: the pooling of an embedding bag, for rows that lie in the host's memory.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "ps/client.h"
#include "trainer/autograd/variable.h"

namespace tandem::remote {

using ps::Pooling;

// Ok if `offsets`, i64 [bags + 1], cut `num_rows` rows into bags: they begin with 0, never fall, and end with num_rows.
absl::Status CheckOffsets(const Tensor& offsets, int64_t num_rows);

// rows [N, D], offsets i64 [B + 1], weights [N] of the rows' type or undefined: all 1 -> [B, D]. Rows add up in their order. Weights
// get no gradient. The bits are those of a parameter server that pools the same rows. REQUIRES: CheckOffsets.
Variable PoolRows(Context& context, const Variable& rows, const Tensor& offsets, const Tensor& weights, Pooling pooling);

}  // namespace tandem::remote
