// The ceiling of `tandem bench pull-push`: the rate of streams whose ends only touch memory. The
// sender gathers messages of 1 MB in pieces of 256 bytes (a row of dim 64) at random from 256 MB.
// The receiver copies them out. Messages use the same rpc/server and rpc/channel, or shared memory,
// as rows.
// Thread rule: that of rpc::Server; the client: one thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/memory/buffer.h"
#include "rpc/channel.h"
#include "rpc/payload.h"
#include "rpc/server.h"
#include "rpc/shared/stream.h"

namespace tandem::bench {

// The memory that messages are gathered from.
// Thread rule: any thread.
class RawMemory {
 public:
  RawMemory();
  // Makes one message, in memory from `allocate`.
  rpc::Payload Gather(absl::FunctionRef<std::shared_ptr<Buffer>(size_t)> allocate);
  // Copies the message to memory that nothing reads.
  static void Take(const rpc::Payload& message);

 private:
  const std::shared_ptr<Buffer> memory_;
  std::atomic<uint64_t> num_gathered_{0};
};

class RawBytesService {
 public:
  // REQUIRES: this object outlives `server`.
  void Register(rpc::Server& server);

 private:
  RawMemory memory_;
};

// The numbers of messages in flight that are tried. The fastest depends on the size of the caches.
inline constexpr int kRawWindows[] = {1, 4};
// Returns each repetition's rate with the window whose median rate is highest, from rates
// [repetition][window]; 0 if none was measured. The best window of each repetition would pick the
// luckiest of several short measurements, to compare with a single one of rows.
std::vector<double> RatesOfBestWindow(const std::vector<std::vector<double>>& rates);

class RawBytesClient {
 public:
  RawBytesClient(const std::vector<std::string>& addresses, bool shared_memory,
                 const rpc::Credentials& credentials);

  enum class Direction { PULL, PUSH };
  // Returns the bytes per second of one stream to every server, each with `window` messages in
  // flight, over `duration`. Errors are those of the streams, such as Unavailable.
  absl::StatusOr<double> Measure(Direction direction, int window, absl::Duration duration);

 private:
  absl::StatusOr<std::unique_ptr<rpc::ClientStream>> Open(rpc::Channel& channel,
                                                          const std::string& method, int window);

  RawMemory memory_;
  std::vector<std::unique_ptr<rpc::Channel>> channels_;
  std::unique_ptr<rpc::SharedStreams> shared_;  // null: gRPC
};

}  // namespace tandem::bench
