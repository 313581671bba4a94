// The TableAdmin of tables sharded over parameter servers: every call goes to all servers, or to
// the servers that own the rows. RemoteClient adds the verbs of a step.
// Thread rule: same as TableAdmin.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/client/call_tracer.h"
#include "ps/client/message_plan.h"
#include "ps/client/row_message.h"
#include "ps/client/servers.h"
#include "ps/client/table_admin.h"
#include "ps/wire/router.h"
#include "rpc/credentials.h"

namespace tandem::ps {

struct RemoteClientOptions {
  // The time limit of any operation without its own deadline. It includes waiting for other
  // trainers.
  absl::Duration timeout = absl::Seconds(60);
  // Bytes of ids and rows in one message; at most kMaxMessageBytes (ps/wire/message_limits.h). The
  // default fits 1 MiB of rows of dim 32 or more plus their ids.
  size_t message_bytes = size_t{9} << 17;
  ConsistencySpec consistency = {};  // the job's
  // The format of rows and gradients in messages. Ascending ids travel as differences.
  WireFormat wire = WIRE_F32;
  // Sends pulls and pushes through shared memory to servers on this host that offer shared memory.
  // Other servers get gRPC.
  bool shared_memory = false;
  rpc::Credentials credentials = {};  // the job's
};

class RemoteTables : public TableAdmin {
 public:
  // `addresses[i]` is ps-i, owner i of `router`. `header` goes with every request. The sender's
  // rank in `header` is this trainer's.
  RemoteTables(const std::vector<std::string>& addresses, Router router, RequestHeader header,
               uint32_t num_trainers, RemoteClientOptions options);

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override;
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override;
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder,
                              const std::vector<std::string>& files, absl::Time deadline) override;
  rpc::Future<HashResult> Hash() override;
  rpc::Future<StatisticsReply> Statistics() override;
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override {
    tracer_.TraceSteps(std::move(tracer), first, last);
  }
  // Returns roles "ps-0", "ps-1", ...
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override;
  // Counts servers whose pulls and pushes use shared memory, among the streams opened so far. Any
  // thread.
  int num_shared() const { return servers_.num_shared(); }
  // Bytes of steps' messages to a server and of its answers, without headers. Any thread.
  rpc::Traffic traffic(size_t server) const { return servers_.traffic(server); }

 protected:
  Servers& servers() { return servers_; }
  const Router& router() const { return router_; }
  const RemoteClientOptions& options() const { return options_; }
  const TableSpecMap& specs() const { return specs_; }
  const Sender& sender() const { return header_.sender(); }
  // Begins the span of a call. The header of the call's requests names the span.
  ConcurrentSpan TraceCall(SpanKind kind, const char* name, uint64_t step) const {
    return tracer_.Begin(sender().rank(), kind, name, step);
  }
  RequestHeader HeaderOf(const ConcurrentSpan& span) const {
    RequestHeader traced = header_;
    traced.set_trace_id(span.trace_id());
    return traced;
  }

 private:
  // Calls `method` for rows of a dense table in messages of bounded size, one per server at a time.
  // Memory is therefore bounded for any number of rows.
  absl::Status CallForRows(
      const char* method, const SegmentIds& ids, size_t width, absl::Time deadline,
      const std::function<rpc::Payload(const RowsMessage&)>& encode,
      const std::function<absl::Status(const RowsMessage&, rpc::Payload)>& take);

  const Router router_;
  const RequestHeader header_;
  const uint32_t num_trainers_;
  const RemoteClientOptions options_;
  TableSpecMap specs_;  // written by CreateTables
  CallTracer tracer_;
  Servers servers_;
};

}  // namespace tandem::ps
