// Pulls and pushes of bags of rows. Servers can pool the rows of a bag. Then neither rows nor their
// gradients travel.
// Thread rule: same as RowClient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ps/client/row_client.h"
#include "ps/wire/bags.h"
#include "rpc/future.h"

namespace tandem::ps {

class PooledClient {
 public:
  virtual ~PooledClient() = default;

  // Pulls one row per bag into `pooled` [bags, dim]. `dim` is the table's.
  // Rows of a bag add up in the order of its ids. Parts pooled by servers add up in the order of
  // the servers.
  virtual rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags,
                                            size_t dim, float* pooled) = 0;
  // Pushes the gradients of the bags' rows, computed from the bags' `gradients` [bags, dim].
  virtual rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags,
                                            size_t dim, const float* gradients) = 0;
};

// PullPooled and PushPooled by whole rows of `rows`, pooled in this process.
// REQUIRES: `rows` outlives the call.
rpc::Future<rpc::Done> PullAndPool(RowClient& rows, uint64_t step, bool create, const Bags& bags,
                                   size_t dim, float* pooled);
rpc::Future<rpc::Done> PushToBags(RowClient& rows, uint64_t step, uint32_t slice, const Bags& bags,
                                  size_t dim, const float* gradients);

}  // namespace tandem::ps
