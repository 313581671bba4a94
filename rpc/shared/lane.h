// One direction of a shared-memory stream: a sender and a receiver in two processes, and between them slots, each of which
// describes a piece of the sender's arena that holds a fragment of a message. The sender posts slots in the order of its
// messages; the receiver gives each back when it is done with the bytes, in any order. There are as many places in both rings as
// slots: none can overflow. Nothing that the peer writes is trusted: it is read once, into private memory, and checked there;
// DataLoss says what is wrong.
// Thread rule: one thread at a time for each object; the two of a lane on any two threads of any processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/payload.h"
#include "rpc/shared/arena.h"

namespace tandem::rpc {

// What travels: a message, or the error that ends a stream, whose text is then the payload.
struct SharedMessage {
  Payload payload;
  absl::StatusCode code = absl::StatusCode::kOk;
};

// The part of a segment that both sides write. Zero bytes are its first state.
struct LaneControl {
  static constexpr uint32_t kSlots = 256;

  struct alignas(64) Slot {
    std::atomic<uint64_t> offset, num_bytes;  // of the fragment, in the sender's arena
    std::atomic<uint64_t> message_bytes;      // of the whole message
    std::atomic<uint32_t> code;
  };
  alignas(64) std::atomic<uint64_t> num_posted;    // ever, by the sender
  alignas(64) std::atomic<uint64_t> num_released;  // ever, by the receiver
  alignas(64) std::atomic<uint32_t> wants_room;    // the sender waits for a release
  std::atomic<uint32_t> posted[kSlots];            // numbers of slots
  std::atomic<uint32_t> released[kSlots];
  Slot slots[kSlots];
};

class LaneSender {
 public:
  LaneSender(LaneControl& control, std::shared_ptr<SharedArena> arena);

  void Queue(SharedMessage message);
  // Posts as much as there is room for; returns whether that was anything. Slices that lie in the arena stay where they are and
  // keep their owners until they are released; others are copied.
  absl::StatusOr<bool> Pump();
  // What of others Pump is done with: its end may run anybody's code, and so must not come under a lock. What goes may make room.
  struct Finished {
    std::vector<std::shared_ptr<const void>> owners;
    std::vector<SharedMessage> messages;
  };
  Finished TakeFinished() { return std::exchange(finished_, {}); }
  // What is queued will not be sent.
  void Drop();
  bool waiting() const { return !queue_.empty(); }
  // Whether Pump, which had no room, would find more now.
  bool has_news() const { return control_.num_released.load() != num_reaped_; }

 private:
  struct Outgoing {
    SharedMessage message;
    size_t slice = 0, offset = 0;  // the next byte to be posted
  };

  // Takes back what was released.
  absl::Status Reap();
  // The next fragment of the first message; false if there is no room.
  bool PostFragment(Outgoing* outgoing);
  bool InPlace(const Payload::Slice& slice) const;
  struct Lent {
    bool posted = false;
    std::shared_ptr<const void> owner;  // of a slice that was not copied
    std::shared_ptr<Buffer> copy;
  };
  void Post(const void* data, size_t num_bytes, const SharedMessage& message, Lent lent);

  LaneControl& control_;
  const std::shared_ptr<SharedArena> arena_;
  std::deque<Outgoing> queue_;
  std::vector<uint32_t> free_slots_;
  std::vector<Lent> lent_;  // by slot
  uint64_t num_posted_ = 0, num_reaped_ = 0;
  Finished finished_;
};

class LaneReceiver {
 public:
  // [arena, arena + num_bytes) is the sender's.
  LaneReceiver(LaneControl& control, const char* arena, size_t num_bytes);

  struct Fragment {
    uint32_t slot;
    const char* data;
    size_t num_bytes, message_bytes;
    absl::StatusCode code;
  };
  // The next fragment, if one has come. It is the caller's until Release.
  absl::StatusOr<std::optional<Fragment>> Next();
  bool has_news() const { return control_.num_posted.load() != num_taken_; }
  // REQUIRES: Next gave the slot, and it was not released since. True if the sender waits for that.
  bool Release(uint32_t slot);

 private:
  LaneControl& control_;
  const char* const arena_;
  const size_t num_bytes_;
  std::vector<bool> held_;  // by slot
  uint64_t num_taken_ = 0, num_released_ = 0;
};

}  // namespace tandem::rpc
