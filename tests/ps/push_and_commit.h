// A step of one push: what a table's rows become after it.
// Thread rule: the table's.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "ps/store/table.h"

namespace tandem::ps {

// Pushes `gradients` [ids.size(), dim] and commits them as step `step`.
inline void PushAndCommit(Table& table, uint64_t step, double learning_rate,
                          absl::Span<const uint64_t> ids, const float* gradients) {
  table.Accumulate(/*slice=*/0, /*sequence=*/step, ids, gradients, nullptr);
  table.Commit(step, learning_rate, /*scale=*/1, /*skip=*/false);
}

}  // namespace tandem::ps
