// The client of tables sharded over parameter servers. The client cuts a pull or push by server and
// by size (MessagePlan) and sends each message on its server's stream for the verb (Servers). A
// broken stream is opened again and resends unanswered messages, so a pull may arrive twice. A push
// counts once: servers know a push by trainer, incarnation and sequence.
// Thread rule: same as RowClient. Every operation ends by its timeout, Save and Load by their
// deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ps/client/merged_pushes.h"
#include "ps/client/pooled_client.h"
#include "ps/client/pooled_message.h"
#include "ps/client/push_message.h"
#include "ps/client/remote_tables.h"
#include "ps/client/row_client.h"

namespace tandem::ps {

class RemoteClient : public RowClient,
                     public RemoteTables,
                     public PooledClient,
                     public MergedPushes {
 public:
  // See RemoteTables.
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

  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override;
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override;

  PushName NamePush() override;
  // Sends one message to each server, whatever the message's size.
  rpc::Future<rpc::Done> PushMerged(uint64_t step, const std::vector<PushName>& names,
                                    std::vector<PushSegment> segments) override;

 private:
  std::shared_ptr<Operation> Start(std::string what, const MessagePlan& plan, ConcurrentSpan span);
  // A call with bags: its messages, and the operation that waits for their answers.
  struct PooledCall {
    std::shared_ptr<PooledMessages> messages;
    std::shared_ptr<Operation> operation;  // null: nothing to send
  };
  absl::StatusOr<PooledCall> StartPooled(std::string what, const Bags& bags, size_t dim,
                                         ConcurrentSpan span);
  // `merged` names the pushes that this push covers; empty: only this trainer's own.
  rpc::Future<rpc::Done> SendPush(uint64_t step, uint32_t slice,
                                  const std::vector<PushSegment>& segments,
                                  const std::vector<PushName>& merged);

  Residuals residuals_;
  uint64_t next_sequence_ = 1;                  // of push messages, over all servers
  std::vector<rpc::Future<rpc::Done>> pushes_;  // since the last Commit
  // Completes when the last commit was sent, or cannot be sent any more.
  rpc::Future<rpc::Done> commit_sent_ = rpc::Future<rpc::Done>::Ready(rpc::Done());
};

}  // namespace tandem::ps
