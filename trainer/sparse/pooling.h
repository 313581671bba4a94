// Pools bags of a table's rows into one row each: an embedding bag, for a table in host memory.
// Rows are read in place and gradients are added in place, so no array with a row per place is ever
// made.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "ps/wire/bags.h"
#include "trainer/autograd/variable.h"

namespace tandem::sparse {

using ps::Pooling;

// Returns Ok if `offsets`, i64 [bags + 1], cut `num_places` places into bags: they begin with 0,
// never decrease, and end with num_places.
absl::Status CheckOffsets(const Tensor& offsets, int64_t num_places);

struct PlacesOfBags {
  Tensor index;         // i64 [P]: the row at each place
  Tensor offsets;       // i64 [B + 1]
  Tensor weights = {};  // [P] of the rows' type; undefined: all 1
};
// table [N, D] -> [B, D]. Rows, and gradients of a row, are added in the order of their places.
// Weights get no gradient. The bits equal those of a parameter server that pools the same rows.
// CHECKs every index.
// REQUIRES: CheckOffsets.
Variable PoolRows(Context& context, const Variable& table, const PlacesOfBags& places,
                  Pooling pooling);

}  // namespace tandem::sparse
