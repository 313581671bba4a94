// A bidirectional call that outlives its connection. When the stream breaks because the peer is gone (Unavailable, Cancelled) it
// is opened again, after a growing pause, and every message without an answer is sent again, in order; so only what may be sent
// twice goes here (a pull; a push, which the server knows by its sequence). Any other error ends all messages on their way.
// Thread rule: any thread. `done` runs exactly once per message, on any thread, outside the lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/client/timer.h"
#include "rpc/channel.h"
#include "rpc/payload.h"

namespace tandem::ps {

class ResendingStream : public std::enable_shared_from_this<ResendingStream> {
 public:
  using Open = std::function<std::unique_ptr<rpc::ClientStream>()>;
  struct Message {
    rpc::Payload payload;
    std::function<bool()> wanted;  // false: nobody waits any more, do not send it again
    std::function<void(absl::StatusOr<rpc::Payload>)> done;
    // Makes the message anew, with a checksum, for a stream that shares no memory; null: `payload` is good for any.
    std::function<rpc::Payload()> checked = nullptr;
  };

  static std::shared_ptr<ResendingStream> Create(Open open, std::shared_ptr<Timer> timer);

  void Send(Message message);
  // As ClientStream::Allocate, of the stream that is open now; the memory is good for any.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // As ClientStream's, of the stream that is open now.
  bool shares_memory();
  // Ends everything, now and to come, with `reason`.
  void Close(absl::Status reason);

 private:
  using Messages = std::deque<std::shared_ptr<Message>>;

  std::shared_ptr<rpc::ClientStream> stream() {
    absl::MutexLock lock(&mutex_);
    return stream_;
  }
  ResendingStream(Open open, std::shared_ptr<Timer> timer) : open_(std::move(open)), timer_(std::move(timer)) {}
  // Sends what is queued; one thread at a time does so, and holds no lock while the transport works.
  void Pump();
  void OnAnswer(const std::shared_ptr<Message>& message, uint64_t generation,
                const absl::StatusOr<rpc::Payload>& answer);
  bool Remove(const std::shared_ptr<Message>& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues what was sent again and arranges a new stream. Returns the messages that nobody wants any more.
  Messages Requeue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void End(const Messages& messages, const absl::Status& status);

  const Open open_;
  const std::shared_ptr<Timer> timer_;
  absl::Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<rpc::ClientStream> stream_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // counts streams given up: errors of an older one are old news
  Messages queue_ ABSL_GUARDED_BY(mutex_);           // to be sent
  Messages sent_ ABSL_GUARDED_BY(mutex_);            // without an answer yet
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool pausing_ ABSL_GUARDED_BY(mutex_) = false;  // before the next stream
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;      // since the last answer
};

}  // namespace tandem::ps
