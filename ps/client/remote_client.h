// The client of tables sharded over parameter servers. A pull or push is cut by server and by size. Each server has one long-lived stream
// for pulls and one for pushes, because a pull that waits for a step must not hold up the pushes that the step needs. ResendingStream
// opens broken streams again and sends unanswered messages again. So a pull may come twice. A push is known by its trainer, incarnation
// and sequence, and counts once. Errors name the operation and the server (ps-N).
// Thread rule: as RowClient. Every operation ends by its timeout, Save and Load by their deadline.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/client/call_tracer.h"
#include "ps/client/merged_pushes.h"
#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "ps/wire/router.h"
#include "rpc/credentials.h"

namespace tandem::ps {

struct RemoteClientOptions {
  // How long any other operation may take, waiting for other trainers included.
  absl::Duration timeout = absl::Seconds(60);
  // Ids and rows of one message; not above kMaxMessageBytes of ps/wire/message_limits.h. 1 MiB of rows of dim 32 or more and their ids.
  size_t message_bytes = size_t{9} << 17;
  ConsistencySpec consistency = {};  // the job's
  // How rows and gradients travel. Ids travel as differences wherever they ascend.
  WireFormat wire = WIRE_F32;
  // Pulls and pushes go through shared memory to servers of this host that offer it, and over gRPC to others.
  bool shared_memory = false;
  rpc::Credentials credentials = {};  // the job's
};

class RemoteClient : public RowClient, public TableAdmin, public PooledClient, public MergedPushes {
 public:
  // `addresses[i]` is ps-i, owner i of `router`. `header` goes with every request; its sender's rank is this trainer's.
  RemoteClient(const std::vector<std::string>& addresses, Router router, RequestHeader header, uint32_t num_trainers,
               RemoteClientOptions options = {});
  ~RemoteClient() override;  // Abort with Cancelled

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create, std::vector<PullSegment> segments) override;
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice, std::vector<PushSegment> segments) override;
  // GradientNorm and Commit are sent when this client's pushes have been acknowledged. They fail with the error of one that failed. In
  // PERMIT a step may be pushed and committed while those before it are on their way.
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override;
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override;
  void Abort(absl::Status reason) override;
  // One message where there is one server, one message holds all, and no push or commit of this client that is on its way was sent
  // otherwise.
  rpc::Future<rpc::Done> PushAndCommit(uint32_t slice, std::vector<PushSegment> segments, const CommitArgs& args) override;

  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim, float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim, const float* gradients) override;

  PushName NamePush() override;
  // One message for each server, whatever its size.
  rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names, std::vector<PushSegment> segments) override;

  absl::Status CreateTables(const std::vector<TableSpec>& tables, absl::Duration timeout) override;
  absl::Status Assign(const RowsToAssign& rows, absl::Time deadline) override;
  absl::Status Read(const RowsToRead& rows, absl::Time deadline) override;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder, absl::Time deadline) override;
  rpc::Future<rpc::Done> Load(uint64_t step, const std::string& folder, const std::vector<std::string>& files,
                              absl::Time deadline) override;
  rpc::Future<HashResult> Hash() override;
  rpc::Future<StatisticsReply> Statistics() override;
  void TraceSteps(std::shared_ptr<Tracer> tracer, uint64_t first, uint64_t last) override {
    tracer_.TraceSteps(std::move(tracer), first, last);
  }
  // Roles "ps-0", "ps-1", ...
  absl::StatusOr<std::vector<RoleTrace>> TakeTraces(absl::Duration timeout) override;
  // Servers whose pulls and pushes go through shared memory, as far as streams were opened. Any thread.
  int num_shared() const;

 private:
  ConcurrentSpan TraceCall(SpanKind kind, const char* name, uint64_t step);
  // True if a push of these goes in one message that may bring the commit.
  bool CanCommitWith(const std::vector<PushSegment>& segments) const;
  // `merged` names the pushes that this one covers; empty: this trainer's alone. `commit` goes with the push; null: nothing does.
  rpc::Future<rpc::Done> SendPush(uint64_t step, uint32_t slice, const std::vector<PushSegment>& segments,
                                  const std::vector<PushName>& merged, const CommitArgs* commit = nullptr);

  struct Core;  // shared with what is in flight
  std::shared_ptr<Core> core_;
  const uint32_t num_trainers_;
  CallTracer tracer_;
  uint64_t next_sequence_ = 1;                  // of push messages, whatever their server
  std::vector<rpc::Future<rpc::Done>> pushes_;  // since the last Commit
  // Completes when the last commit was sent, or will not be. If that commit went with its push: when it is done.
  rpc::Future<rpc::Done> commit_sent_ = rpc::Future<rpc::Done>::Ready(rpc::Done());
  // The last commit that went by itself.
  rpc::Future<rpc::Done> commit_done_ = rpc::Future<rpc::Done>::Ready(rpc::Done());
};

}  // namespace tandem::ps
