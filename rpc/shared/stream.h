// The client's end of streams through shared memory, to servers of the same host and user. They behave as Channel's do: the same
// order, window and errors, the same end when the peer goes. Whoever is refused here reaches the server through its Channel.
// Thread rule: any thread. Replies arrive on one thread for all streams. Destruction ends every stream with Cancelled; from
// inside a callback it returns at once and the rest happens behind it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/client_stream.h"
#include "rpc/credentials.h"
#include "rpc/shared/poller.h"

namespace tandem::rpc {

class SharedStreams {
 public:
  // Every stream shows `credentials`. A server that has not welcomed a stream within `welcome_timeout` is taken for one that refuses.
  explicit SharedStreams(Credentials credentials = {}, absl::Duration welcome_timeout = absl::Seconds(5));
  ~SharedStreams() { poller_->Stop(); }

  // A stream to the server that listens on `address` ("host:port", as it calls itself); does not block. An error if no such
  // server of this host offers shared memory, or it refused some before; a stream that is refused breaks with Unavailable, once.
  absl::StatusOr<std::unique_ptr<ClientStream>> Open(const std::string& address, const std::string& method, int window = 4);

 private:
  class Stream;
  class Handle;
  struct Refusals;

  const Credentials credentials_;
  const absl::Duration welcome_timeout_;
  const std::shared_ptr<Refusals> refusals_;
  const std::shared_ptr<SharedPoller> poller_;
};

}  // namespace tandem::rpc
