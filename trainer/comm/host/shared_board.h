// The shared memory of a CpuGroup's ranks: counters to wait on, slots for bytes, and the failure
// that ends every wait. Counters never restart between calls and slots alternate, so no call needs
// a closing barrier.
// - phases: every rank posts, fills slot p % 2, then enters phase p. A rank in phase p is done with
//   phase p - 1;
// - the ring: messages to the right neighbour through the sender's outbox of kRingSlots slots;
// - channels: messages of each (sender, receiver) pair, as a bounded queue of fragments.
// Thread rule: the group's worker thread; Abort from any thread. Each counter has one writer: its
// rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rpc/shared/memory.h"
#include "trainer/comm/collective.h"
#include "trainer/comm/ring_order.h"

namespace tandem::comm {

class SharedBoard {
 public:
  static constexpr int64_t kPhaseSlotBytes = 512 << 10;
  static constexpr int64_t kRingSlotBytes = kChunkElements * 8;  // a chunk of the widest type
  static constexpr int64_t kFragmentBytes = 64 << 10;
  static constexpr uint64_t kRingSlots = 4;
  static constexpr uint64_t kFragments = 4;

  // The message of a rank that enters a phase.
  struct Post {
    Description description;
    int64_t segment = -1, offset = 0;  // where its view lies in an allocated segment, if anywhere
    int64_t rounds = 0;                // AllToAllV: the phases that its data needs
  };
  struct Fragment {
    Description description;
    int64_t num_bytes;
    alignas(64) char bytes[kFragmentBytes];
  };
  // How long to wait, and the error that names the missing ranks.
  struct Waiter {
    absl::Time deadline;
    absl::FunctionRef<absl::Status(const std::string& missing)> late;
  };

  static size_t NumBytes(int size);
  // `names`: how errors call the ranks (RankName).
  // REQUIRES: `memory` is NumBytes(size) zeroed bytes, mapped by all ranks.
  SharedBoard(std::unique_ptr<rpc::SharedMemory> memory, int rank, int size,
              std::vector<std::string> names = {});

  // Phases. Fill next_slot, call Enter, then read the posts and slots of all ranks until the next
  // Enter.
  char* next_slot() const { return PhaseSlot(rank_, phase_ + 1); }
  const char* slot(int rank) const { return PhaseSlot(rank, phase_); }
  const Post& post(int rank) const { return line(rank).posts[phase_ % 2]; }
  absl::Status Enter(const Post& post, const Waiter& waiter);

  // The ring. AwaitRing waits for a message from the left (`receives`) and for room towards the
  // right (`sends`). Then the caller may read the inbox and fill the outbox. AdvanceRing returns
  // the inbox slot and publishes the outbox.
  absl::Status AwaitRing(bool receives, bool sends, const Waiter& waiter);
  const char* ring_inbox() const { return RingSlot(Left(), ring_taken_); }
  char* ring_outbox() const { return RingSlot(rank_, ring_sent_); }
  void AdvanceRing(bool received, bool sent);

  // Channels. The caller may fill (or read) the awaited fragment until Advance publishes it (or
  // returns it).
  absl::Status AwaitRoomTowards(int target, const Waiter& waiter, Fragment** fragment);
  void AdvanceSend(int target);
  absl::Status AwaitFragmentFrom(int source, const Waiter& waiter, const Fragment** fragment);
  void AdvanceReceive(int source);

  // Ends every wait of every rank with `reason`. The first call over all ranks counts.
  void Abort(const absl::Status& reason);
  // Returns Ok, or the reason and the rank that gave it.
  absl::Status CheckAborted() const;

 private:
  struct Header {
    std::atomic<uint32_t> abort_state;  // 0 none, 1 being written, 2 written
    int32_t abort_rank;
    uint32_t abort_code;
    char abort_text[2000];
  };
  // One rank's counters. A rank that waits for any of them sleeps on `event`, which changes with
  // each counter.
  struct Line {
    alignas(64) std::atomic<uint32_t> event;
    std::atomic<uint32_t> sleepers;
    alignas(64) std::atomic<uint64_t> entered;
    std::atomic<uint64_t> ring_sent;
    alignas(64) std::atomic<uint64_t> ring_taken;
    alignas(64) Post posts[2];
  };
  struct Channel {
    alignas(64) std::atomic<uint64_t> sent;
    alignas(64) std::atomic<uint64_t> taken;
    Fragment fragments[kFragments];
  };

  Header& header() const;
  Line& line(int rank) const;
  Channel& channel(int sender, int receiver) const;
  char* PhaseSlot(int rank, uint64_t phase) const;
  char* RingSlot(int rank, uint64_t message) const;
  int Left() const { return (rank_ + size_ - 1) % size_; }
  int Right() const { return (rank_ + 1) % size_; }

  // Wakes the ranks that wait for one of this rank's counters.
  void Notify();
  // Waits until ready(), which `peer` makes true. Returns false if the deadline passes first.
  absl::StatusOr<bool> Await(int peer, absl::Time deadline, absl::FunctionRef<bool()> ready);
  std::string RanksBehind(absl::FunctionRef<bool(const Line&)> behind) const;
  std::string SlowestInRing() const;

  const std::unique_ptr<rpc::SharedMemory> memory_;
  const int rank_;
  const int size_;
  const std::vector<std::string> names_;
  const bool crowded_;  // more ranks than cores: polling takes the core from the awaited rank
  uint64_t phase_ = 0;
  uint64_t ring_sent_ = 0, ring_taken_ = 0;
};

}  // namespace tandem::comm
