// The ceiling of `tandem bench pull-push`: what streams carry when nothing but memory is touched at their ends. Messages of 1 MB,
// gathered by the sender in pieces of 256 bytes (a row of dim 64) at random from 256 MB, and copied out by the receiver; through the
// same rpc/server and rpc/channel, or shared memory, as rows. Thread rule: as rpc::Server and, for the client, one thread.
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

// The memory that messages are gathered from. Thread rule: any thread.
class RawMemory {
 public:
  RawMemory();
  // One message, in memory that `allocate` gives.
  rpc::Payload Gather(absl::FunctionRef<std::shared_ptr<Buffer>(size_t)> allocate);
  // Copies it out, to where nobody looks.
  static void Take(const rpc::Payload& message);

 private:
  const std::shared_ptr<Buffer> memory_;
  std::atomic<uint64_t> num_gathered_{0};
};

class RawBytesService {
 public:
  // The service object must outlive `server`.
  void Register(rpc::Server& server);

 private:
  RawMemory memory_;
};

// Messages on their way at a time. Which is faster depends on how far caches reach.
inline constexpr int kRawWindows[] = {1, 4};
// What each repetition's raw streams carried with the window that, by the medians, carries most, of rates [repetition][window]; 0 where none
// was measured. The best of each repetition would be the luckiest of several short measurements, beside one of ours.
std::vector<double> RatesOfBestWindow(const std::vector<std::vector<double>>& rates);

class RawBytesClient {
 public:
  RawBytesClient(const std::vector<std::string>& addresses, bool shared_memory, const rpc::Credentials& credentials);

  enum class Direction { PULL, PUSH };
  // Bytes per second through one stream to every server, each with `window` messages on their way, for so long. Unavailable and
  // the like as the streams say.
  absl::StatusOr<double> Measure(Direction direction, int window, absl::Duration duration);

 private:
  absl::StatusOr<std::unique_ptr<rpc::ClientStream>> Open(rpc::Channel& channel, const std::string& method, int window);

  RawMemory memory_;
  std::vector<std::unique_ptr<rpc::Channel>> channels_;
  std::unique_ptr<rpc::SharedStreams> shared_;  // null: gRPC
};

}  // namespace tandem::bench
