// PullPooled and PushPooled of tandem.EmbeddingService over a host: bags of ids become a pull, or a push, of their rows, which the host
// knows as any other; so waiting for a step, exactly-once and the order of sums are those of rows.
// Thread rule: as EmbeddingService.
#pragma once

#include "ps/server/request_check.h"
#include "ps/server/table_host.h"
#include "rpc/payload.h"
#include "rpc/server.h"

namespace tandem::ps {

class PooledCalls {
 public:
  // Both must outlive it.
  PooledCalls(TableHost& host, const RequestCheck& check) : host_(host), check_(check) {}

  // Refused input is told by the return value, before anything is done; everything else by `reply`.
  absl::Status Pull(rpc::Payload& payload, const rpc::Reply& reply) const;
  absl::Status Push(rpc::Payload& payload, const rpc::Reply& reply) const;

 private:
  TableHost& host_;
  const RequestCheck& check_;
};

}  // namespace tandem::ps
