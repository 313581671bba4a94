#include "rpc/master/shard_map.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem::rpc {

ShardMap ShardMap::Even(uint32_t num_ps) {
  TANDEM_CHECK_LE(num_ps, kNumVirtualShards);
  ShardMap map;
  map.num_ps_ = num_ps;
  if (num_ps == 0) return map;
  map.owners_.resize(kNumVirtualShards);
  for (uint32_t shard = 0; shard < kNumVirtualShards; ++shard)
    map.owners_[shard] = shard * num_ps / kNumVirtualShards;
  return map;
}

absl::StatusOr<ShardMap> ShardMap::FromRuns(uint32_t version, uint32_t num_ps,
                                            const std::vector<Run>& runs) {
  ShardMap map;
  map.version_ = version;
  map.num_ps_ = num_ps;
  const uint32_t num_shards = num_ps == 0 ? 0 : kNumVirtualShards;
  for (const Run& run : runs) {
    if (run.ps >= num_ps || run.num_shards > num_shards - map.owners_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard map: a run of ", run.num_shards, " shards of ps-", run.ps,
                       " does not fit ", num_ps, " servers and ", num_shards, " shards"));
    }
    map.owners_.insert(map.owners_.end(), run.num_shards, run.ps);
  }
  if (map.owners_.size() != num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("shard map: ", map.owners_.size(), " of ",
                                                   num_shards, " virtual shards have an owner"));
  }
  return map;
}

std::vector<ShardMap::Run> ShardMap::Runs() const {
  std::vector<Run> runs;
  for (uint32_t owner : owners_) {
    if (runs.empty() || runs.back().ps != owner) runs.push_back({0, owner});
    ++runs.back().num_shards;
  }
  return runs;
}

}  // namespace tandem::rpc
