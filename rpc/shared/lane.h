// One direction of a shared-memory stream: a sender and a receiver in two processes. Slots between
// them describe pieces of the sender's arena; each piece holds a fragment of a message. The sender
// posts slots in the order of its messages. The receiver releases slots in any order. Both rings
// have as many places as there are slots, so neither can overflow.
// The receiver trusts nothing that the peer writes: values are read once into private memory and
// checked there. DataLoss says what is wrong.
// Thread rule: one thread at a time per object; sender and receiver on any two threads of any
// processes.
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

// One message, or the error that ends a stream, with the error's text as payload.
struct SharedMessage {
  Payload payload;
  absl::StatusCode code = absl::StatusCode::kOk;
};

// The part of a segment that both sides write. Initially all bytes are zero.
struct LaneControl {
  static constexpr uint32_t kSlots = 256;

  struct alignas(64) Slot {
    std::atomic<uint64_t> offset, num_bytes;  // the fragment, in the sender's arena
    std::atomic<uint64_t> message_bytes;      // size of the whole message
    std::atomic<uint32_t> code;
  };
  alignas(64) std::atomic<uint64_t> num_posted;    // total, by the sender
  alignas(64) std::atomic<uint64_t> num_released;  // total, by the receiver
  alignas(64) std::atomic<uint32_t> wants_room;    // the sender waits for a release
  std::atomic<uint32_t> posted[kSlots];            // slot numbers
  std::atomic<uint32_t> released[kSlots];
  Slot slots[kSlots];
};

class LaneSender {
 public:
  LaneSender(LaneControl& control, std::shared_ptr<SharedArena> arena);

  void Queue(SharedMessage message);
  // Posts as many fragments as there is room for. Returns true if any were posted. Slices in the
  // arena are not copied and keep their owners until the receiver releases them; other slices are
  // copied.
  absl::StatusOr<bool> Pump();
  // Objects that Pump no longer needs. Destroying them may run foreign code and may free room, so
  // destroy them without holding a lock.
  struct Finished {
    std::vector<std::shared_ptr<const void>> owners;
    std::vector<SharedMessage> messages;
  };
  Finished TakeFinished() { return std::exchange(finished_, {}); }
  // Drops all queued messages.
  void Drop();
  bool waiting() const { return !queue_.empty(); }
  // True if Pump, after it ran out of room, would now find room.
  bool has_news() const { return control_.num_released.load() != num_reaped_; }

 private:
  struct Outgoing {
    SharedMessage message;
    size_t slice = 0, offset = 0;  // position of the next byte to post
  };

  // Takes back the slots that the receiver has released.
  absl::Status Reap();
  // Posts the next fragment of the first message. Returns false if there is no room.
  bool PostFragment(Outgoing* outgoing);
  bool InPlace(const Payload::Slice& slice) const;
  struct Lent {
    bool posted = false;
    std::shared_ptr<const void> owner;  // owner of a slice that was not copied
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
  // [arena, arena + num_bytes) is the sender's arena.
  LaneReceiver(LaneControl& control, const char* arena, size_t num_bytes);

  struct Fragment {
    uint32_t slot;
    const char* data;
    size_t num_bytes, message_bytes;
    absl::StatusCode code;
  };
  // The next fragment, if one has arrived. The caller owns the fragment until Release.
  absl::StatusOr<std::optional<Fragment>> Next();
  bool has_news() const { return control_.num_posted.load() != num_taken_; }
  // Returns true if the sender waits for a release.
  // REQUIRES: Next returned the slot, and the slot was not released since.
  bool Release(uint32_t slot);

 private:
  LaneControl& control_;
  const char* const arena_;
  const size_t num_bytes_;
  std::vector<bool> held_;  // by slot
  uint64_t num_taken_ = 0, num_released_ = 0;
};

}  // namespace tandem::rpc
