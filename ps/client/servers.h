// The parameter servers of a RemoteClient: for each server a channel and one long-lived stream for
// each verb of a step. A pull that waits for a step therefore never holds up the pushes that the
// step needs. Errors name the operation and the server (ps-N).
// Thread rule: one thread calls; callbacks run on other threads; any thread may call Abort and
// num_shared.
// Invariant: every operation and every call ends by its timeout or deadline.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "ps/client/operation.h"
#include "ps/client/resending_stream.h"
#include "ps/client/timer.h"
#include "rpc/channel.h"
#include "rpc/credentials.h"
#include "rpc/future.h"
#include "rpc/payload.h"
#include "rpc/shared/stream.h"

namespace tandem::ps {

// Returns `status` with `what` and the server in front of its message.
absl::Status Annotate(const absl::Status& status, const std::string& what, int server);

class Servers {
 public:
  // The verbs that have a stream to every server.
  enum Verb { PULL, PUSH, PULL_POOLED, PUSH_POOLED, GRADIENT_NORM, COMMIT, NUM_VERBS };
  // Checks and takes an answer.
  using Take = std::function<absl::Status(rpc::Payload)>;
  using Replies = absl::StatusOr<std::vector<rpc::Payload>>;

  // `timeout` limits every operation. `shared_memory`: streams to servers on this host that offer
  // shared memory use it.
  Servers(const std::vector<std::string>& addresses, absl::Duration timeout, bool shared_memory,
          const rpc::Credentials& credentials);
  ~Servers();  // calls Abort with Cancelled
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  size_t size() const { return servers_.size(); }
  rpc::Channel& channel(size_t server) { return *servers_[server].channel; }
  ResendingStream& stream(Verb verb, int server) {
    return *servers_[static_cast<size_t>(server)].streams[verb];
  }

  // Begins an operation. messages_of_server[i] counts the messages that will be sent to ps-i.
  std::shared_ptr<Operation> Begin(std::string what, std::vector<int> messages_of_server,
                                   ConcurrentSpan span);
  // Begins an operation with one message for every server.
  std::shared_ptr<Operation> BeginAll(std::string what, ConcurrentSpan span);
  // Sends one of the operation's messages. `take` takes its answer.
  static void Send(ResendingStream& stream, rpc::Payload payload,
                   const std::shared_ptr<Operation>& operation, int server, Take take);
  // Sends the same request to every server once all of `before` are done. Sends nothing if one
  // fails, and fails with the first error. The returned future completes after the sending.
  rpc::Future<rpc::Done> SendAll(Verb verb, const std::vector<rpc::Future<rpc::Done>>& before,
                                 std::string request, const std::shared_ptr<Operation>& operation,
                                 const Take& take);

  // Calls `method` of one server, outside the streams.
  rpc::Future<rpc::Payload> Call(size_t server, const char* method, rpc::Payload request,
                                 absl::Time deadline);
  // Sends requests[i] to server i. `then` runs once, with all replies in order or the first error.
  void CallEach(const char* method, const std::string& what,
                const std::vector<rpc::Payload>& requests, absl::Time deadline,
                const std::function<void(Replies)>& then);
  // Sends the same request to every server.
  void CallAll(const char* method, const std::string& what, std::string request,
               absl::Time deadline, const std::function<void(Replies)>& then);

  // Bytes of all streams to a server.
  rpc::Traffic traffic(size_t server) const;
  // Counts servers whose streams use shared memory, among the streams opened so far.
  int num_shared() const;
  // Fails all operations and calls in flight, and all later ones, with `reason`.
  void Abort(const absl::Status& reason);

 private:
  struct Server {
    std::shared_ptr<rpc::Channel> channel;
    std::array<std::shared_ptr<ResendingStream>, NUM_VERBS> streams;
    // True if that stream, when last opened, shared memory.
    std::array<std::shared_ptr<std::atomic<bool>>, NUM_VERBS> is_shared;
  };

  const absl::Duration timeout_;
  const std::shared_ptr<Timer> timer_ = std::make_shared<Timer>();
  std::vector<Server> servers_;
};

}  // namespace tandem::ps
