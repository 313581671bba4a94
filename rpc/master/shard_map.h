// The placement of rows: an id belongs to one of 1,024 virtual shards, and the master's map gives
// the parameter server of each shard. A pure value: no clock, no socket. Invariant: every shard has
// exactly one owner.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/random.h"

namespace tandem::rpc {

constexpr uint32_t kNumVirtualShards = 1024;

// The routing of proto/embedding.proto. `table` is the table's number, 1, 2, ...
constexpr uint32_t VirtualShard(uint32_t table, uint64_t id) {
  return static_cast<uint32_t>(Fmix64(id ^ Fmix64(table)) >> 54);
}

class ShardMap {
 public:
  // Consecutive shards with one owner; the wire format of the map.
  struct Run {
    uint32_t num_shards = 0;
    uint32_t ps = 0;
  };

  ShardMap() = default;  // for a job without parameter servers
  // Contiguous ranges whose sizes differ by at most one.
  // REQUIRES: 0 <= num_ps <= 1024.
  static ShardMap Even(uint32_t num_ps);
  // InvalidArgument unless the runs cover all shards and name servers below `num_ps`.
  static absl::StatusOr<ShardMap> FromRuns(uint32_t version, uint32_t num_ps,
                                           const std::vector<Run>& runs);

  uint32_t version() const { return version_; }
  uint32_t num_ps() const { return num_ps_; }
  // The rank of the parameter server that owns the shard.
  // REQUIRES: num_ps() > 0.
  uint32_t Owner(uint32_t virtual_shard) const { return owners_[virtual_shard]; }
  uint32_t OwnerOf(uint32_t table, uint64_t id) const { return owners_[VirtualShard(table, id)]; }
  std::vector<Run> Runs() const;

 private:
  uint32_t version_ = 1;
  uint32_t num_ps_ = 0;
  std::vector<uint32_t> owners_;  // [kNumVirtualShards], or empty
};

}  // namespace tandem::rpc
