// Bags of rows made one row each: the pooling of an embedding bag, for rows that lie in the host's memory.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "trainer/autograd/variable.h"

namespace tandem::remote {

// What the weighted sum of a bag is divided by: 1, the number of its rows, or its root. An empty bag is 0.
enum class Pooling { SUM, MEAN, SQRT_N };

// 1, or what the sum of a bag of `count` rows is multiplied with.
double PoolingFactor(Pooling pooling, int64_t count);

// Ok if `offsets`, i64 [bags + 1], cut `num_rows` rows into bags: they begin with 0, never fall, and end with num_rows.
absl::Status CheckOffsets(const Tensor& offsets, int64_t num_rows);

// rows [N, D], offsets i64 [B + 1], weights [N] of the rows' type or undefined: all 1 -> [B, D]. Rows add up in their order. Weights
// get no gradient. REQUIRES: CheckOffsets.
Variable PoolRows(Context& context, const Variable& rows, const Tensor& offsets, const Tensor& weights, Pooling pooling);

}  // namespace tandem::remote
