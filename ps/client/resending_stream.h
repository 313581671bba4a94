// A bidirectional call that outlives its connection. When the peer is gone (Unavailable,
// Cancelled), the stream is opened again after a growing pause. Then every unanswered message is
// sent again, in order. Any other error ends all messages in flight.
// REQUIRES: every message may arrive twice. Pulls may; servers recognise a repeated push by its
// sequence.
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
#include "rpc/traffic.h"

namespace tandem::ps {

class ResendingStream : public std::enable_shared_from_this<ResendingStream> {
 public:
  using Open = std::function<std::unique_ptr<rpc::ClientStream>()>;
  struct Message {
    rpc::Payload payload;
    std::function<bool()> wanted;  // false: the caller has given up; do not resend
    std::function<void(absl::StatusOr<rpc::Payload>)> done;
  };

  static std::shared_ptr<ResendingStream> Create(Open open, std::shared_ptr<Timer> timer);

  void Send(Message message);
  // Like ClientStream::Allocate of the open stream. Any later stream can send the memory.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // Bytes of messages and answers, those that were sent twice too.
  rpc::Traffic traffic() const { return traffic_.total(); }
  // Ends all messages, present and future, with `reason`.
  void Close(absl::Status reason);

 private:
  using Messages = std::deque<std::shared_ptr<Message>>;

  std::shared_ptr<rpc::ClientStream> stream() {
    absl::MutexLock lock(&mutex_);
    return stream_;
  }
  ResendingStream(Open open, std::shared_ptr<Timer> timer)
      : open_(std::move(open)), timer_(std::move(timer)) {}
  // Sends the queue. One thread at a time sends, without the lock while the transport works.
  void Pump();
  void OnAnswer(const std::shared_ptr<Message>& message, uint64_t generation,
                const absl::StatusOr<rpc::Payload>& answer);
  bool Remove(const std::shared_ptr<Message>& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves unanswered messages back to the queue and schedules a new stream. Returns the messages
  // that are no longer wanted.
  Messages Requeue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void End(const Messages& messages, const absl::Status& status);

  const Open open_;
  const std::shared_ptr<Timer> timer_;
  rpc::TrafficCounter traffic_;
  absl::Mutex mutex_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<rpc::ClientStream> stream_ ABSL_GUARDED_BY(mutex_);
  // Counts abandoned streams. Errors of older generations are ignored.
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  Messages queue_ ABSL_GUARDED_BY(mutex_);  // messages to send
  Messages sent_ ABSL_GUARDED_BY(mutex_);   // messages without an answer
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool pausing_ ABSL_GUARDED_BY(mutex_) = false;  // waiting for the next stream
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;      // failures since the last answer
};

}  // namespace tandem::ps
