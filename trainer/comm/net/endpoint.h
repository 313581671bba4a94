// Where a process takes the connections of its process groups. One port serves all groups. A
// connection begins with a greeting: magic, version, the job's token, the group, the caller's rank
// and the channel. Who does not know the token is sent away, and keeps nobody waiting.
// Thread rule: any thread. A thread of the endpoint's own reads greetings.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/comm/net/socket.h"

namespace tandem::comm {

// The purpose of a connection between two ranks of a group.
enum class Channel : uint8_t { COLLECTIVES, MESSAGES, CONTROL };
inline constexpr Channel kChannels[] = {Channel::COLLECTIVES, Channel::MESSAGES, Channel::CONTROL};

struct Caller {
  std::string group;  // unique in the job
  int rank = 0;
  Channel channel = Channel::COLLECTIVES;

  auto operator<=>(const Caller&) const = default;
};

class Endpoint {
 public:
  // Listens at `listen`. Others reach the endpoint at `advertise` (port 0: the port of `listen`),
  // or if that is empty at `listen`. `token` is the job's.
  static absl::StatusOr<std::unique_ptr<Endpoint>> Open(const std::string& listen,
                                                        const std::string& advertise,
                                                        const std::string& token);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // "host:port", as others reach the endpoint.
  const std::string& address() const { return address_; }
  // Waits for a caller and takes its connection.
  absl::StatusOr<Socket> Take(const Caller& caller, absl::Time deadline);
  // Calls the endpoint at `address`. Waits until it has taken the greeting.
  absl::StatusOr<Socket> Call(const std::string& address, const Caller& as,
                              absl::Time deadline) const;

 private:
  // A connection whose greeting is not complete.
  struct Guest {
    Socket socket;
    std::string greeting;
    absl::Time deadline;
  };

  Endpoint(Socket listening, std::string address, std::string token);
  void Serve();
  // Reads on. True if the guest is done: known and kept, or sent away.
  bool IsDone(Guest& guest);

  const Socket listening_;
  const std::string address_, token_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::map<Caller, Socket> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem::comm
