// A connection to one server. Every call has a deadline. A call marked idempotent retries
// Unavailable with jittered back-off until the deadline. Errors name the peer, the method and the
// elapsed time.
// Thread rule: all methods from any thread. Destruction cancels everything in flight and returns
// when every future has completed and its callbacks have run. Destruction inside a callback returns
// at once and finishes later.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rpc/client_stream.h"
#include "rpc/credentials.h"
#include "rpc/future.h"
#include "rpc/payload.h"

namespace tandem::rpc {

struct CallOptions {
  absl::Duration deadline = absl::Seconds(30);
  bool idempotent = false;  // safe to send twice
};

class Channel {
 public:
  // `address` is "host:port". Connects lazily. Every call and stream shows `credentials`.
  explicit Channel(std::string address, Credentials credentials = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const std::string& address() const;
  // `method` is "/package.Service/Method".
  Future<Payload> Call(const std::string& method, Payload request, CallOptions options);
  std::unique_ptr<ClientStream> OpenStream(const std::string& method, int window = 4);
  // Cancels everything in flight with `reason` and refuses new calls with it.
  void Abort(absl::Status reason);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tandem::rpc
