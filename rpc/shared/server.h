// A server's streams through shared memory. Accepts clients of this host at a local socket and
// creates a segment per stream. Calls the same handlers as gRPC. One thread serves all streams.
// Thread rule: like Server. Destruction ends all streams; later replies do nothing.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rpc/credentials.h"
#include "rpc/handler.h"
#include "rpc/shared/options.h"
#include "rpc/shared/poller.h"

namespace tandem::rpc {

// Handlers by "/package.Service/Method".
using HandlerMap = std::map<std::string, std::shared_ptr<const Handler>>;

class SharedServer {
 public:
  // `address` is the server's listening address. Clients must show `credentials`. Unavailable if
  // another server uses the address.
  static absl::StatusOr<std::unique_ptr<SharedServer>> Start(const std::string& address,
                                                             const Credentials& credentials,
                                                             HandlerMap streams,
                                                             SharedMemoryOptions options);
  ~SharedServer() { poller_->Stop(); }

  // Returns when no handler holds a message, or at the deadline.
  void AwaitReplies(absl::Time deadline);

 private:
  class Listener;
  class Running;
  class Stream;
  SharedServer();

  const std::shared_ptr<SharedPoller> poller_;
  const std::shared_ptr<Running> running_;
};

}  // namespace tandem::rpc
