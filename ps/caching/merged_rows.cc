#include "ps/caching/merged_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/base/check.h"
#include "ps/wire/row_index.h"
#include "rpc/master/shard_map.h"

namespace tandem::ps {
namespace {

// How many ids ahead the index is prefetched.
constexpr size_t kLookAhead = 8;

uint64_t IdAt(const RowBlock& block, size_t i) {
  uint64_t id;
  std::memcpy(&id, block.ids + i * sizeof(id), sizeof(id));
  return id;
}

}  // namespace

MergedRows::MergedRows(uint32_t table, size_t dim, std::vector<RowBlock> blocks)
    : table_(table), dim_(dim), blocks_(std::move(blocks)) {
  size_t num_rows = 0;
  for (const RowBlock& block : blocks_) num_rows += block.count;
  TANDEM_CHECK_LT(num_rows, size_t{std::numeric_limits<uint32_t>::max()})
      << "gradients of one step";
  numbers_.reserve(num_rows);
  RowIndex index(num_rows);
  for (const RowBlock& block : blocks_) {
    for (size_t i = 0; i < block.count; ++i) {
      if (i + kLookAhead < block.count) index.Prefetch(IdAt(block, i + kLookAhead));
      const uint64_t id = IdAt(block, i);
      const auto [number, is_new] = index.FindOrInsert(id, ids_.size());
      if (is_new) ids_.push_back(id);
      numbers_.push_back(static_cast<uint32_t>(number));
    }
  }
}

void MergedRows::Sum(size_t num_groups, absl::FunctionRef<size_t(uint32_t shard)> group_of) {
  TANDEM_CHECK(sums_ == nullptr) << "added up already";
  struct Entry {
    size_t group;
    uint64_t id;
    uint32_t number;
  };
  std::vector<Entry> entries;
  entries.reserve(ids_.size());
  for (const uint64_t id : ids_) {
    entries.push_back(
        {group_of(rpc::VirtualShard(table_, id)), id, static_cast<uint32_t>(entries.size())});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.group, a.id) < std::tie(b.group, b.id);
  });
  std::vector<uint32_t> place(ids_.size());  // by number
  begins_.assign(num_groups + 1, 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    ids_[i] = entries[i].id;
    place[entries[i].number] = static_cast<uint32_t>(i);
    begins_[entries[i].group + 1] = i + 1;
  }
  for (size_t group = 0; group < num_groups; ++group)
    begins_[group + 1] = std::max(begins_[group + 1], begins_[group]);
  sums_ = Buffer::Allocate(ids_.size() * dim_ * sizeof(float));
  float* const sums = static_cast<float*>(sums_->data());
  std::vector<char> begun(ids_.size());
  auto number = numbers_.begin();
  for (const RowBlock& block : blocks_) {
    for (const float* from = block.gradients; from < block.gradients + block.count * dim_;
         from += dim_) {
      const size_t row = place[*number++];
      float* const sum = sums + row * dim_;
      if (!std::exchange(begun[row], 1))
        std::memcpy(sum, from, dim_ * sizeof(float));
      else
        for (size_t i = 0; i < dim_; ++i) sum[i] += from[i];
    }
  }
}

}  // namespace tandem::ps
