// The client's end of streams through shared memory, to servers of the same host and user. Streams
// behave like Channel's: the same order, window, errors, and end when the peer is gone. A client
// that is refused here uses its Channel instead.
// Thread rule: any thread. Replies arrive on one thread for all streams. Destruction ends every
// stream with Cancelled. Destruction inside a callback returns at once and finishes later.
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
  // Every stream shows `credentials`. A server that does not welcome a stream within
  // `welcome_timeout` counts as refusing.
  explicit SharedStreams(Credentials credentials = {},
                         absl::Duration welcome_timeout = absl::Seconds(5));
  ~SharedStreams() { poller_->Stop(); }

  // Opens a stream to the server that listens on `address` (the server's own "host:port"). Does not
  // block. Returns an error if no such server of this host offers shared memory, or if it refused a
  // stream before. A stream that is refused later breaks with Unavailable, once.
  absl::StatusOr<std::unique_ptr<ClientStream>> Open(const std::string& address,
                                                     const std::string& method, int window = 4);

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
