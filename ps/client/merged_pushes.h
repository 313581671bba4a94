// Pushes that cover those of other trainers, for MergedClient, which adds up the gradients of a host's trainers.
// Thread rule: as RowClient.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/client/row_client.h"
#include "ps/wire/step.h"
#include "rpc/future.h"

namespace tandem::ps {

class MergedPushes {
 public:
  virtual ~MergedPushes() = default;

  // Draws a name for a push of this trainer, for PushMerged.
  virtual PushName NamePush() = 0;
  // Pushes, in slice 0, sums of gradients of several trainers: of names[0], which is this trainer's push, and of the other names. A server
  // takes each name once for a virtual shard, so one call has all that these names have of a shard. BSP only.
  virtual rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names, std::vector<PushSegment> segments) = 0;
};

}  // namespace tandem::ps
