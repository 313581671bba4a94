// One end of a shared-memory stream: a segment with a lane each way, and a socket. Through the
// socket the ends wake each other and learn that the peer is gone. Messages arrive in the order of
// sending. A received message stays in the sender's memory until its last slice is dropped. If that
// would leave the sender too little memory, the message is copied.
// Thread rule: Send, Allocate, Close and dropping received messages from any thread; Take, Step,
// Rest and End from the poller's thread.
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
#include "rpc/shared/lane.h"
#include "rpc/shared/local_socket.h"
#include "rpc/shared/memory.h"

namespace tandem::rpc {

class SharedLink : public std::enable_shared_from_this<SharedLink> {
 public:
  enum class Side { CLIENT = 0, SERVER = 1 };

  // The size of a segment with two arenas of `arena_bytes`.
  static size_t SegmentBytes(size_t arena_bytes);
  // REQUIRES: memory->num_bytes() == SegmentBytes(arena_bytes).
  SharedLink(std::shared_ptr<SharedMemory> memory, size_t arena_bytes, Side side,
             std::shared_ptr<LocalSocket> socket);

  // Memory for a message that Send then does not copy. Private memory if the arena has too little.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // Sends the message, or queues it until there is room. Does nothing after Close.
  void Send(SharedMessage message);
  // The next message, if a whole one has arrived. DataLoss if the peer breaks the protocol.
  absl::StatusOr<std::optional<SharedMessage>> Take();
  // Called while the poller is awake. Sends messages that had no room before, and returns true if
  // any were sent. DataLoss like Take.
  absl::StatusOr<bool> Step();
  // Called before the poller sleeps. Returns false if there is still work. An arrived message
  // counts as work only if `takes_messages`.
  bool Rest(bool takes_messages);
  // Stops both ends. Received messages stay valid.
  void Close();
  // Closes, and drops partly received and unsent messages, because they may keep this object alive.
  // The poller's last call.
  void End();

 private:
  class Held;
  struct Control;

  Control& control() const;
  void Ring();
  // Posts as many fragments as there is room for. Returns true if any were posted.
  absl::StatusOr<bool> Pump();
  // `held_bytes` is 0 for a fragment that was copied.
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

  // The message being assembled; used by the poller's thread only.
  SharedMessage partial_;
  size_t message_bytes_ = 0, num_taken_ = 0;
  int num_fragments_ = 0;
  std::shared_ptr<Buffer> rest_;  // the rest of the message, once fragments are copied
  absl::Status refused_;          // the error after which nothing is received
};

}  // namespace tandem::rpc
