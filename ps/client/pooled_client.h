// Calls on bags of rows. Tables that are elsewhere pool there, so that neither rows nor their gradients travel.
// Thread rule: as RowClient.
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

  // Pulls a row for each bag into `pooled` [bags, dim]. Rows of a bag add up in the order of its ids; parts that servers pooled add up in
  // the order of the servers. `dim` is the table's.
  virtual rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) = 0;
  // Pushes the gradients of the bags' rows, given those of the bags, [bags, dim].
  virtual rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) = 0;
};

// The same by whole rows of `rows`, which are pooled in this process. `rows` outlives the call.
rpc::Future<rpc::Done> PullAndPool(RowClient& rows, uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled);
rpc::Future<rpc::Done> PushToBags(RowClient& rows, uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients);

}  // namespace tandem::ps
