// One end of a shared-memory stream: a segment with a lane each way, and the socket by which the ends wake each other and learn
// that the other is gone. Messages arrive in the order in which they were sent. A received message lies in the sender's memory
// until its last slice is dropped, or, where that would leave the sender too little, in a copy.
// Thread rule: Send, Allocate, Close and dropping received messages from any thread; Take, Step, Rest and End from the poller's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/memory/buffer.h"
#include "rpc/shared/local_socket.h"
#include "rpc/shared/lane.h"
#include "rpc/shared/memory.h"

namespace tandem::rpc {

class SharedLink : public std::enable_shared_from_this<SharedLink> {
 public:
  enum class Side { CLIENT = 0, SERVER = 1 };

  // Of a segment whose senders have so much room each.
  static size_t SegmentBytes(size_t arena_bytes);
  // REQUIRES: memory->num_bytes() == SegmentBytes(arena_bytes).
  SharedLink(std::shared_ptr<SharedMemory> memory, size_t arena_bytes, Side side, std::shared_ptr<LocalSocket> socket);

  // Memory for a message that Send then does not copy; private memory if there is too little.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // Copies the message, or queues it until there is room. Does nothing after Close.
  void Send(SharedMessage message);
  // The next message, if a whole one has come. DataLoss if the peer does not keep to the protocol.
  absl::StatusOr<std::optional<SharedMessage>> Take();
  // The poller is awake: sends what had no room before, and says whether that was anything. DataLoss as Take.
  absl::StatusOr<bool> Step();
  // The poller is about to sleep. False if there is something to do after all; without `takes_messages`, one that has come is
  // nothing.
  bool Rest(bool takes_messages);
  // Both ends stop; what was received stays.
  void Close();
  // Close, and forget a message of which only a part has come, and those that were not sent: they may keep this object. Last of what
  // the poller calls.
  void End();

 private:
  class Held;
  struct Control;

  Control& control() const;
  void Ring();
  // Posts what there is room for; whether that was anything.
  absl::StatusOr<bool> Pump();
  // `held_bytes`: 0 for one that was copied.
  void Release(uint32_t slot, size_t held_bytes);
  absl::StatusOr<std::optional<SharedMessage>> TakeNext();
  absl::Status AddFragment(const LaneReceiver::Fragment& fragment);
  void Copy(const LaneReceiver::Fragment& fragment);

  const std::shared_ptr<SharedMemory> memory_;
  const size_t arena_bytes_;
  const Side side_;
  const std::shared_ptr<LocalSocket> socket_;
  const std::shared_ptr<SharedArena> arena_;
  std::atomic<bool> closed_{false};

  absl::Mutex sending_;
  LaneSender sender_ ABSL_GUARDED_BY(sending_);

  absl::Mutex receiving_;
  LaneReceiver receiver_ ABSL_GUARDED_BY(receiving_);
  size_t held_bytes_ ABSL_GUARDED_BY(receiving_) = 0;
  uint32_t num_held_ ABSL_GUARDED_BY(receiving_) = 0;

  // The message that is being put together; the poller's.
  SharedMessage partial_;
  size_t message_bytes_ = 0, num_taken_ = 0;
  int num_fragments_ = 0;
  std::shared_ptr<Buffer> rest_;  // once fragments are copied: for all that follow
  absl::Status refused_;          // why nothing is taken any more
};

}  // namespace tandem::rpc
