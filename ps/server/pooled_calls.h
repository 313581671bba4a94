// PullPooled and PushPooled of tandem.EmbeddingService. Bags of ids become a pull or a push of
// their rows, which the host treats like any other. So waiting, exactly-once and the order of sums
// are the same as for rows.
// Thread rule: the rule of EmbeddingService.
#pragma once

#include "ps/server/request_check.h"
#include "ps/server/table_host.h"
#include "rpc/payload.h"
#include "rpc/server.h"

namespace tandem::ps {

class PooledCalls {
 public:
  // `host` and `check` must outlive this object.
  PooledCalls(TableHost& host, const RequestCheck& check) : host_(host), check_(check) {}

  // The return value tells refused input, before anything is done. `reply` tells everything else.
  absl::Status Pull(rpc::Payload& payload, const rpc::Reply& reply) const;
  absl::Status Push(rpc::Payload& payload, const rpc::Reply& reply) const;

 private:
  TableHost& host_;
  const RequestCheck& check_;
};

}  // namespace tandem::ps
