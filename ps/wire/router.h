// Routes the ids of a segment to their owners. An owner is a server (in a client) or a worker
// thread (in a server). The id's virtual shard decides the owner, so rows never depend on who holds
// them. Split also refuses ids that no table may see: the padding id 0, and repeated ids in calls
// for rows.
// Thread rule: immutable after construction; any thread.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/master/shard_map.h"

namespace tandem {
class ShardRange;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

using ShardSet = std::bitset<rpc::kNumVirtualShards>;

// The virtual shards of parameter server `ps`.
ShardSet ShardsOwnedBy(const rpc::ShardMap& map, uint32_t ps);

// One owner's part of a segment: ids[i] was at place positions[i] of the segment. Order is kept. A
// sole owner has all ids in place and empty positions, so that whole runs of rows can be copied at
// once.
struct OwnedIds {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> positions;
};

class Router {
 public:
  // REQUIRES: owner_of_shard has rpc::kNumVirtualShards entries, each below num_owners.
  Router(std::vector<uint16_t> owner_of_shard, int num_owners);
  // The owners are the job's parameter servers.
  // REQUIRES: map.num_ps() > 0.
  static Router FromShardMap(const rpc::ShardMap& map);
  // Shard s belongs to owner s % num_owners.
  static Router RoundRobin(int num_owners);

  int num_owners() const { return num_owners_; }
  int OwnerOf(uint32_t table, uint64_t id) const {
    return owner_of_shard_[rpc::VirtualShard(table, id)];
  }
  // The virtual shards of one owner, ascending, in as few ranges as possible.
  std::vector<ShardRange> ShardsOf(int owner) const;
  // Returns one entry per owner. `ids` are `count` little-endian u64 at any alignment. Adds the
  // virtual shards of the ids to `touched`. InvalidArgument, naming table and id, for id 0 or, with
  // `distinct`, for a repeated id.
  absl::StatusOr<std::vector<OwnedIds>> Split(uint32_t table, std::string_view table_name,
                                              const void* ids, size_t count,
                                              ShardSet* touched = nullptr,
                                              bool distinct = true) const;

 private:
  std::vector<uint16_t> owner_of_shard_;
  int num_owners_;
  uint64_t multiplier_;  // multiplier of the hash that finds repeated ids
};

}  // namespace tandem::ps
