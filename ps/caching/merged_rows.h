// Sums of gradients of one table's rows from several trainers. Gradients of an id are added in the
// order of the blocks. Sums are laid out as they are pushed: by group of virtual shards, within a
// group by id, so ids travel as differences.
// Thread rule: one thread at a time. The memory that blocks point to must live until Sum returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {

// Gradient rows of one push.
struct RowBlock {
  size_t count = 0;
  const char* ids = nullptr;         // u64[count], distinct, none 0, at any alignment
  const float* gradients = nullptr;  // [count, dim]
};

class MergedRows {
 public:
  // Collects the distinct ids of the blocks.
  MergedRows(uint32_t table, size_t dim, std::vector<RowBlock> blocks);

  uint32_t table() const { return table_; }
  size_t num_ids() const { return ids_.size(); }
  // Adds up the gradients. Call once.
  void Sum(size_t num_groups, absl::FunctionRef<size_t(uint32_t shard)> group_of);
  // The ids, ascending, and the gradients [ids, dim] of a group. Call after Sum.
  absl::Span<const uint64_t> ids(size_t group) const {
    return absl::MakeConstSpan(ids_).subspan(begins_[group], begins_[group + 1] - begins_[group]);
  }
  const float* gradients(size_t group) const {
    return static_cast<const float*>(sums_->data()) + begins_[group] * dim_;
  }

 private:
  const uint32_t table_;
  const size_t dim_;
  const std::vector<RowBlock> blocks_;
  // For every row of all blocks: the index of its id in `ids_` before Sum.
  std::vector<uint32_t> numbers_;
  // In order of first arrival; after Sum in the order of the groups.
  std::vector<uint64_t> ids_;
  std::vector<size_t> begins_;  // first index of each group, and the end
  std::shared_ptr<Buffer> sums_;
};

}  // namespace tandem::ps
