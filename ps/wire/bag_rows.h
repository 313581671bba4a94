// The arithmetic of bags: their distinct ids, sums of rows, and gradients of rows. Tables add in the same order (Table::PullSums,
// PendingGradients), so where a bag is pooled does not show in its bits.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::ps {

// Of the rows that a message's ids name, each counted as often as it comes: what a server takes memory for.
inline constexpr size_t kMaxPooledRowBytes = size_t{64} << 20;

// The ids of bags, each once, in the order of their first places; `place[i]` is that of ids[i] among them.
struct DistinctIds {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> place;
};
// `ids` are `count` u64 at any alignment. REQUIRES: none is 0.
DistinctIds FindDistinct(const void* ids, size_t count);

// A part of some bags: `counts[b]` of the ids that `place` is of belong to bag b. Weights, at any alignment, may be null: all 1.
struct BagPart {
  const std::vector<uint32_t>& place;
  const std::vector<uint32_t>& counts;
  const void* weights = nullptr;
  size_t dim = 0;
};
// pooled [bags, dim] += the weighted rows [distinct, dim], in the order of the ids.
void AddRows(const BagPart& part, const float* rows, float* pooled);
// gradients [distinct, dim] = sums of the weighted gradients of bags [bags, dim] (at any alignment), in the order of the ids.
// REQUIRES: `place` numbers the distinct ids in the order of their first places.
void SumGradients(const BagPart& part, const void* of_bags, float* gradients);

}  // namespace tandem::ps
