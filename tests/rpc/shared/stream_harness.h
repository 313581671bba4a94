// A server of streams through shared memory, clients, and messages that name themselves.
// Thread rule: HeldReplies from any thread; the rest from the test's thread.
#pragma once

#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "rpc/server.h"
#include "rpc/shared/link.h"
#include "rpc/shared/local_socket.h"
#include "rpc/shared/protocol.h"
#include "rpc/shared/stream.h"

namespace tandem::rpc {

inline constexpr char kService[] = "tandem.EmbeddingService";
inline const std::string kMethod = std::string("/") + kService + "/Push";
inline constexpr size_t kSmallArena = 64 * Extents::kUnit;

inline absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

inline std::string Text(absl::StatusOr<Payload> payload) {
  return payload.ok() ? std::string(payload->Flatten()) : payload.status().ToString();
}
inline std::string Text(const Future<Payload>& reply) { return Text(reply.Wait(Soon())); }

inline std::string Bytes(size_t count, char first) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(first + i * 7 + (i >> 11));
  return bytes;
}

inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

inline void Echo(Payload request, Reply reply) { reply(std::move(request)); }

// The number of stream segments that this process maps.
inline int NumMapped() {
  int count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    count += line.find("/memfd:tandem") != std::string::npos;
  return count;
}

// Holds replies until the test gives them out.
class HeldReplies {
 public:
  Handler handler() {
    return [this](Payload request, Reply reply) {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(std::move(request));
      replies_.push_back(std::move(reply));
    };
  }
  bool WaitFor(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&] { return replies_.size() >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  size_t count() {
    absl::MutexLock lock(&mutex_);
    return replies_.size();
  }
  Reply Take(size_t i) {
    absl::MutexLock lock(&mutex_);
    return std::exchange(replies_[i], nullptr);
  }
  std::string Request(size_t i) {
    absl::MutexLock lock(&mutex_);
    return std::string(requests_[i].Flatten());
  }
  void DropRequests() {
    absl::MutexLock lock(&mutex_);
    requests_.assign(requests_.size(), Payload());
  }

 private:
  absl::Mutex mutex_;
  std::vector<Payload> requests_;
  std::vector<Reply> replies_;
};

inline std::unique_ptr<Server> StartServer(Handler handler,
                                           size_t arena_bytes = SharedMemoryOptions().arena_bytes,
                                           const std::string& address = "127.0.0.1:0") {
  auto server = std::make_unique<Server>();
  server->Handle(kService, "Push", MethodKind::STREAM, std::move(handler));
  absl::Status status = server->Start(address);
  if (status.ok()) status = server->ServeSharedMemory({arena_bytes});
  EXPECT_TRUE(status.ok()) << status;
  return server;
}

inline std::unique_ptr<ClientStream> Open(SharedStreams& streams, const std::string& address,
                                          int window = 4, const std::string& method = kMethod) {
  auto stream = streams.Open(address, method, window);
  EXPECT_TRUE(stream.ok()) << stream.status();
  return stream.ok() ? *std::move(stream) : nullptr;
}

}  // namespace tandem::rpc
