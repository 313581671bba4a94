#include "ps/wire/router.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/memory/buffer.h"
#include "proto/embedding.pb.h"
#include "ps/wire/hash_seed.h"

namespace tandem::ps {

using rpc::kNumVirtualShards;

namespace {

// True if the ids are strictly ascending from 1 on.
bool Ascend(const std::vector<uint64_t>& ids) {
  uint64_t previous = 0;
  for (const uint64_t id : ids) {
    if (id <= previous) return false;
    previous = id;
  }
  return true;
}

// The ids of a segment that came already, as a hash table of places. A place is four bytes, and the
// table is at most half full. The table of a message of 4,096 ids fits the nearest cache; the ids
// and numbers of a RowIndex would not.
class SeenIds {
 public:
  SeenIds(const uint64_t* ids, size_t count, uint64_t multiplier)
      : ids_(ids),
        multiplier_(multiplier),
        num_slots_(std::bit_ceil(2 * count + 2)),
        slots_(Buffer::Allocate(num_slots_ * sizeof(uint32_t))),
        places_(static_cast<uint32_t*>(slots_->data())) {
    std::memset(places_, 0, num_slots_ * sizeof(uint32_t));
  }

  // Adds the id at the next place, `place`. Returns false if the id came at an earlier place.
  bool Add(uint64_t id, size_t place) {
    size_t slot = (id * multiplier_) >> (64 - std::countr_zero(num_slots_));
    for (; places_[slot] != 0; slot = (slot + 1) & (num_slots_ - 1)) {
      if (ids_[places_[slot] - 1] == id) return false;
    }
    places_[slot] = static_cast<uint32_t>(place + 1);
    return true;
  }

 private:
  const uint64_t* const ids_;
  const uint64_t multiplier_;
  const size_t num_slots_;
  const std::shared_ptr<Buffer> slots_;
  uint32_t* const places_;  // place + 1; 0: free
};

}  // namespace

ShardSet ShardsOwnedBy(const rpc::ShardMap& map, uint32_t ps) {
  ShardSet shards;
  for (uint32_t shard = 0; map.num_ps() > 0 && shard < kNumVirtualShards; ++shard)
    shards.set(shard, map.Owner(shard) == ps);
  return shards;
}

Router::Router(std::vector<uint16_t> owner_of_shard, int num_owners)
    : owner_of_shard_(std::move(owner_of_shard)),
      num_owners_(num_owners),
      multiplier_(HashSeed() | 1) {
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
    if (ranges.empty() || ranges.back().first() + ranges.back().count() != shard)
      ranges.emplace_back().set_first(shard);
    ranges.back().set_count(ranges.back().count() + 1);
  }
  return ranges;
}

absl::StatusOr<std::vector<OwnedIds>> Router::Split(uint32_t table, std::string_view table_name,
                                                    const void* ids, size_t count,
                                                    ShardSet* touched, bool distinct) const {
  const auto wrong = [&](uint64_t id, const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", absl::string_view(table_name.data(), table_name.size()), ": id ", id, " ", why));
  };
  if (count >= std::numeric_limits<uint32_t>::max())
    return wrong(count, "ids in one segment are too many");
  // Checks and uses the same copy: the sender may still write to the message's memory.
  std::vector<uint64_t> read(count);
  if (count > 0) std::memcpy(read.data(), ids, count * sizeof(uint64_t));
  if (!distinct) {
    if (std::find(read.begin(), read.end(), 0) != read.end())
      return wrong(0, "is padding, never a row");
  } else if (!Ascend(read)) {  // strictly ascending ids are distinct and not 0
    SeenIds seen(read.data(), count, multiplier_);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t id = read[i];
      if (id == 0) return wrong(id, "is padding, never a row");
      if (!seen.Add(id, i)) return wrong(id, "comes twice in one segment; merge duplicates first");
    }
  }
  std::vector<OwnedIds> owned(static_cast<size_t>(num_owners_));
  if (num_owners_ == 1) {
    owned[0].ids = std::move(read);
    if (touched != nullptr) {
      ShardSet shards;
      for (const uint64_t id : owned[0].ids) shards[rpc::VirtualShard(table, id)] = true;
      *touched |= shards;
    }
    return owned;
  }
  // Counts the ids of each owner first, so that each part is written through its own pointer.
  std::vector<uint16_t> owner_of(count);
  std::vector<size_t> num_owned(owned.size());
  // A local set: the compiler then knows that writing to the set changes none of the arrays.
  ShardSet shards;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t shard = rpc::VirtualShard(table, read[i]);
    shards[shard] = true;
    owner_of[i] = owner_of_shard_[shard];
    ++num_owned[owner_of[i]];
  }
  struct Next {
    uint64_t* id;
    uint32_t* position;
  };
  std::vector<Next> next;
  for (size_t owner = 0; owner < owned.size(); ++owner) {
    owned[owner].ids.resize(num_owned[owner]);
    owned[owner].positions.resize(num_owned[owner]);
    next.push_back({owned[owner].ids.data(), owned[owner].positions.data()});
  }
  for (size_t i = 0; i < count; ++i) {
    Next& place = next[owner_of[i]];
    *place.id++ = read[i];
    *place.position++ = static_cast<uint32_t>(i);
  }
  if (touched != nullptr) *touched |= shards;
  return owned;
}

}  // namespace tandem::ps
