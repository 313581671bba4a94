// Gradients of one table's rows from several trainers, added up per id in the order of the blocks in which they came, and laid out as they
// are pushed: by group of virtual shards, in a group by id, so that ids travel as differences.
// Thread rule: one thread at a time; what the blocks point to stays until Sum returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {

// Rows of one push.
struct RowBlock {
  size_t count = 0;
  const char* ids = nullptr;         // u64[count], distinct, none 0, at any alignment
  const float* gradients = nullptr;  // [count, dim]
};

class MergedRows {
 public:
  // Finds which ids there are.
  MergedRows(uint32_t table, size_t dim, std::vector<RowBlock> blocks);

  uint32_t table() const { return table_; }
  size_t num_ids() const { return ids_.size(); }
  // Adds up. Once.
  void Sum(size_t num_groups, absl::FunctionRef<size_t(uint32_t shard)> group_of);
  // Of a group, after Sum: ids ascend, gradients are [ids, dim].
  absl::Span<const uint64_t> ids(size_t group) const {
    return absl::MakeConstSpan(ids_).subspan(begins_[group], begins_[group + 1] - begins_[group]);
  }
  const float* gradients(size_t group) const { return static_cast<const float*>(sums_->data()) + begins_[group] * dim_; }

 private:
  const uint32_t table_;
  const size_t dim_;
  const std::vector<RowBlock> blocks_;
  std::vector<uint32_t> numbers_;  // of every row of all blocks: its id's place in `ids_`, as it was before Sum
  std::vector<uint64_t> ids_;      // in order of first arrival; after Sum in that of the groups
  std::vector<size_t> begins_;     // of each group, and the end
  std::shared_ptr<Buffer> sums_;
};

}  // namespace tandem::ps
