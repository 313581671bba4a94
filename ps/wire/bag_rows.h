// The arithmetic of bags: distinct ids, sums of rows, and gradients of rows. Tables add in the same
// order (Table::PullSums, PendingGradients), so the bits do not depend on where a bag is pooled.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::ps {

// Limit on the bytes of rows that the ids of one message name. A row that is named n times counts n
// times. A server allocates memory for these rows.
inline constexpr size_t kMaxPooledRowBytes = size_t{64} << 20;

// The distinct ids of bags, in the order of first appearance. `place[i]` is the index in `ids` of
// the bags' i-th id.
struct DistinctIds {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> place;
};
// `ids` are `count` u64 at any alignment.
// REQUIRES: no id is 0.
DistinctIds FindDistinct(const void* ids, size_t count);

// A part of some bags: the next `counts[b]` entries of `place` belong to bag b. `weights` are f32
// at any alignment; null means all 1.
struct BagPart {
  const std::vector<uint32_t>& place;
  const std::vector<uint32_t>& counts;
  const void* weights = nullptr;
  size_t dim = 0;
};
// pooled [bags, dim] += weight * row of `rows` [distinct, dim], in the order of the ids.
void AddRows(const BagPart& part, const float* rows, float* pooled);
// gradients [distinct, dim] = sums of weight * bag gradient, in the order of the ids. `of_bags` is
// f32 [bags, dim] at any alignment.
// REQUIRES: `place` numbers the distinct ids in the order of first appearance.
void SumGradients(const BagPart& part, const void* of_bags, float* gradients);

}  // namespace tandem::ps
