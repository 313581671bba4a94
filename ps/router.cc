#include "ps/router.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "ps/row_index.h"

namespace tandem::ps {

using rpc::kNumVirtualShards;

Router::Router(std::vector<uint16_t> owner_of_shard, int num_owners)
    : owner_of_shard_(std::move(owner_of_shard)), num_owners_(num_owners) {
  TANDEM_CHECK_EQ(owner_of_shard_.size(), size_t{kNumVirtualShards});
  TANDEM_CHECK_GE(num_owners, 1);
  for (uint16_t owner : owner_of_shard_) TANDEM_CHECK_LT(static_cast<int>(owner), num_owners);
}

Router Router::FromShardMap(const rpc::ShardMap& map) {
  std::vector<uint16_t> owner_of_shard;
  for (uint32_t shard = 0; shard < kNumVirtualShards; ++shard) {
    owner_of_shard.push_back(static_cast<uint16_t>(map.Owner(shard)));
  }
  return Router(std::move(owner_of_shard), static_cast<int>(map.num_ps()));
}

Router Router::RoundRobin(int num_owners) {
  std::vector<uint16_t> owner_of_shard(kNumVirtualShards);
  for (size_t shard = 0; shard < kNumVirtualShards; ++shard) {
    owner_of_shard[shard] = static_cast<uint16_t>(shard % static_cast<size_t>(num_owners));
  }
  return Router(std::move(owner_of_shard), num_owners);
}

std::vector<ShardRange> Router::ShardsOf(int owner) const {
  std::vector<ShardRange> ranges;
  for (uint32_t shard = 0; shard < kNumVirtualShards; ++shard) {
    if (owner_of_shard_[shard] != owner) continue;
    if (ranges.empty() || ranges.back().first() + ranges.back().count() != shard) ranges.emplace_back().set_first(shard);
    ranges.back().set_count(ranges.back().count() + 1);
  }
  return ranges;
}

absl::StatusOr<std::vector<OwnedIds>> Router::Split(uint32_t table, std::string_view table_name, const void* ids,
                                                    size_t count, ShardSet* touched) const {
  const auto wrong = [&](uint64_t id, const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", absl::string_view(table_name.data(), table_name.size()), ": id ", id, " ", why));
  };
  if (count > std::numeric_limits<uint32_t>::max()) return wrong(count, "ids in one segment are too many");
  std::vector<OwnedIds> owned(static_cast<size_t>(num_owners_));
  for (OwnedIds& part : owned) {
    part.ids.reserve(count / owned.size() + count / 8 + 1);
    part.positions.reserve(part.ids.capacity());
  }
  RowIndex seen(count);
  ShardSet shards;  // no other's memory: in the loop it is not to be taken for any of the arrays
  for (size_t i = 0; i < count; ++i) {
    uint64_t id;
    std::memcpy(&id, static_cast<const char*>(ids) + i * sizeof(id), sizeof(id));
    if (id == 0) return wrong(id, "is padding, never a row");
    if (!seen.FindOrInsert(id, i).second) return wrong(id, "comes twice in one segment; merge duplicates first");
    const uint32_t shard = rpc::VirtualShard(table, id);
    shards[shard] = true;
    OwnedIds& part = owned[owner_of_shard_[shard]];
    part.ids.push_back(id);
    part.positions.push_back(static_cast<uint32_t>(i));
  }
  if (touched != nullptr) *touched |= shards;
  return owned;
}

}  // namespace tandem::ps
