// The client of tables sharded over parameter servers. The client cuts a pull or push by server and
// by size. Each server has separate long-lived streams for pulls and for pushes. A pull that waits
// for a step therefore never holds up the pushes that the step needs.
// ResendingStream reopens broken streams and resends unanswered messages, so a pull may arrive
// twice. A push counts once: servers know a push by trainer, incarnation and sequence. Errors name
// the operation and the server (ps-N).
// Thread rule: same as RowClient. Every operation ends by its timeout, Save and Load by their
// deadline.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/embedding.pb.h"
#include "ps/client/call_tracer.h"
#include "ps/client/merged_pushes.h"
#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
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

class RemoteClient : public RowClient, public TableAdmin, public PooledClient, public MergedPushes {
 public:
  // `addresses[i]` is ps-i, owner i of `router`. `header` goes with every request. The sender's
  // rank in `header` is this trainer's.
  RemoteClient(const std::vector<std::string>& addresses, Router router, RequestHeader header,
               uint32_t num_trainers, RemoteClientOptions options = {});
  ~RemoteClient() override;  // calls Abort with Cancelled

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override;
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override;
  // GradientNorm and Commit are sent when this client's pushes have been acknowledged. They fail
  // with the error of a failed push. In PERMIT a step may be pushed and committed while earlier
  // steps are in flight.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override;
  // Sends one message if all of these hold; otherwise calls Push and Commit:
  //   - There is one server.
  //   - The push fits into one message.
  //   - No separate push or commit of this client is in flight.
  rpc::Future<rpc::Done> PushAndCommit(uint32_t slice, std::vector<PushSegment> segments,
                                       const CommitArgs& args) override;

  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override;

  PushName NamePush() override;
  // Sends one message to each server, whatever the message's size.
  rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names,
                                    std::vector<PushSegment> segments) override;

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
  int num_shared() const;

 private:
  ConcurrentSpan TraceCall(SpanKind kind, const char* name, uint64_t step);
  // True if a push of `segments` fits into one message that may carry the commit.
  bool CanCommitWith(const std::vector<PushSegment>& segments) const;
  // `merged` names the pushes that this push covers; empty: only this trainer's own. `commit` goes
  // with the push; null: no commit.
  rpc::Future<rpc::Done> SendPush(uint64_t step, uint32_t slice,
                                  const std::vector<PushSegment>& segments,
                                  const std::vector<PushName>& merged,
                                  const CommitArgs* commit = nullptr);

  struct Core;  // shared with operations in flight
  std::shared_ptr<Core> core_;
  const uint32_t num_trainers_;
  CallTracer tracer_;
  uint64_t next_sequence_ = 1;                  // of push messages, over all servers
  std::vector<rpc::Future<rpc::Done>> pushes_;  // since the last Commit
  // Completes when the last commit was sent, or cannot be sent any more. A commit that went with
  // its push completes the future when the commit is done.
  rpc::Future<rpc::Done> commit_sent_ = rpc::Future<rpc::Done>::Ready(rpc::Done());
  // Result of the last commit that was sent without a push.
  rpc::Future<rpc::Done> commit_done_ = rpc::Future<rpc::Done>::Ready(rpc::Done());
};

}  // namespace tandem::ps
