// The streams of a server through shared memory: accepts clients of this host at a local socket, makes each stream its segment
// and calls the same handlers as gRPC does, on one thread for all streams.
// Thread rule: as Server. Destruction ends all streams; replies that come later do nothing.
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

using HandlerMap = std::map<std::string, std::shared_ptr<const Handler>>;  // by "/package.Service/Method"

class SharedServer {
 public:
  // `address` is where the server listens. Clients must show `credentials`. Unavailable if somebody serves the address already.
  static absl::StatusOr<std::unique_ptr<SharedServer>> Start(const std::string& address, const Credentials& credentials,
                                                             HandlerMap streams, SharedMemoryOptions options);
  ~SharedServer() { poller_->Stop(); }

  // Returns when no message is with its handler, or at the deadline.
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
