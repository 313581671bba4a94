// Pushes that cover the pushes of other trainers. MergedClient uses them to add up gradients over
// the trainers of a host.
// Thread rule: same as RowClient.
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

  // Draws a name for a push of this trainer, to be given to PushMerged.
  virtual PushName NamePush() = 0;
  // Pushes, in slice 0, sums of gradients of several trainers. The sums cover names[0], this
  // trainer's push, and every other name.
  // A server takes each name once per virtual shard. So one call carries all that these names have
  // for a shard. BSP only.
  virtual rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names,
                                            std::vector<PushSegment> segments) = 0;
};

}  // namespace tandem::ps
