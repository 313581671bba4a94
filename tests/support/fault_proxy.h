// A bad network between a client and a server of tandem.EmbeddingService. Forwards messages of
// unary calls and streams, and harms each as a seeded plan says.
// A message's fault depends on the seed, the message's bytes and the number of earlier copies,
// never on timing. After some attempts a message passes. The proxy counts everything.
// Thread rule: any thread. The destructor breaks all connections and drops messages in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/client/timer.h"
#include "rpc/channel.h"
#include "rpc/server.h"

namespace tandem::support {

// The number of messages per thousand that suffer each fault. All other messages pass.
struct FaultPlan {
  uint64_t seed = 0;
  int drop_request = 0;  // never forwarded; the sender's call or stream breaks
  int drop_reply = 0;  // forwarded, but the answer is swallowed; the sender's call or stream breaks
  int delay = 0;       // forwarded some milliseconds later
  int duplicate = 0;   // forwarded twice at the same time
  int replay = 0;      // forwarded, and again after newer messages
};

// Counts for one method.
struct FaultCounts {
  uint64_t messages = 0;  // that came
  uint64_t dropped_requests = 0, dropped_replies = 0, delayed = 0, duplicated = 0, replayed = 0;
  // Second copies that were answered with Ok, and with an error.
  uint64_t copies_accepted = 0, copies_refused = 0;
};

class FaultProxy {
 public:
  // `target`: host:port of the real server.
  FaultProxy(const std::string& target, const FaultPlan& plan);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string address() const { return server_->address(); }
  // Forwards the messages kept for a replay. Returns true when every copy is answered, false after
  // 20 s.
  bool ReplayKept();
  FaultCounts counts(const std::string& method) const;

 private:
  enum class Fault { NONE, DROP_REQUEST, DROP_REPLY, DELAY, DUPLICATE, REPLAY };
  using Answer = std::function<void(absl::StatusOr<rpc::Payload>)>;
  struct Method {
    std::string name;
    rpc::MethodKind kind;
  };
  struct Kept {
    const Method* method;
    rpc::Payload message;
    uint64_t due;  // when so many messages came
  };

  void Take(const Method& method, rpc::Payload message, const rpc::Reply& reply);
  // Counts the message and draws its fault.
  Fault Draw(const Method& method, std::string_view bytes, uint64_t* bits);
  void Forward(const Method& method, const rpc::Payload& message, Answer answer);
  // Forwards the message once more and swallows the answer.
  void ForwardCopy(const Method& method, const rpc::Payload& message);
  std::vector<Kept> TakeDue(bool all);

  const FaultPlan plan_;
  const std::vector<Method> methods_;
  mutable absl::Mutex mutex_;
  std::map<std::string, FaultCounts> counts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int> attempts_ ABSL_GUARDED_BY(mutex_);  // by the hash of the message
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_messages_ ABSL_GUARDED_BY(mutex_) = 0;
  int copies_on_their_way_ ABSL_GUARDED_BY(mutex_) = 0;
  ps::Timer timer_;
  std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tandem::support
