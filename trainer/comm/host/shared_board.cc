#include "trainer/comm/host/shared_board.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<SharedBoard::Post> &&
              std::is_trivially_copyable_v<SharedBoard::Fragment>);

constexpr int kPolls = 500;        // about ten microseconds
constexpr int kCrowdedPolls = 50;  // without pauses: the peer probably waits for this very core
constexpr int kYields = 50;
// A lost wake-up costs this much, but never hangs.
constexpr absl::Duration kSleep = absl::Seconds(1);

constexpr size_t RoundUp(size_t n) { return (n + 63) / 64 * 64; }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Layout: header, lines, phase slots, ring slots, channels.
size_t SharedBoard::NumBytes(int size) {
  const size_t ranks = static_cast<size_t>(size);
  return RoundUp(sizeof(Header)) +
         ranks * (sizeof(Line) + 2 * kPhaseSlotBytes + kRingSlots * kRingSlotBytes) +
         ranks * (ranks - 1) * sizeof(Channel);
}

SharedBoard::SharedBoard(std::unique_ptr<rpc::SharedMemory> memory, int rank, int size,
                         std::vector<std::string> names)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      names_(std::move(names)),
      crowded_(static_cast<unsigned>(size) > std::thread::hardware_concurrency()) {
  TANDEM_CHECK_EQ(memory_->num_bytes(), NumBytes(size));
}

SharedBoard::Header& SharedBoard::header() const {
  return *reinterpret_cast<Header*>(memory_->data());
}

SharedBoard::Line& SharedBoard::line(int rank) const {
  return reinterpret_cast<Line*>(memory_->data() + RoundUp(sizeof(Header)))[rank];
}

char* SharedBoard::PhaseSlot(int rank, uint64_t phase) const {
  char* slots = reinterpret_cast<char*>(&line(size_));
  return slots +
         (2 * static_cast<int64_t>(rank) + static_cast<int64_t>(phase % 2)) * kPhaseSlotBytes;
}

char* SharedBoard::RingSlot(int rank, uint64_t message) const {
  char* slots = PhaseSlot(size_, 0);
  return slots + static_cast<int64_t>(rank * kRingSlots + message % kRingSlots) * kRingSlotBytes;
}

SharedBoard::Channel& SharedBoard::channel(int sender, int receiver) const {
  const int column = receiver < sender ? receiver : receiver - 1;  // no rank sends to itself
  return reinterpret_cast<Channel*>(RingSlot(size_, 0))[sender * (size_ - 1) + column];
}

void SharedBoard::Notify() {
  Line& mine = line(rank_);
  mine.event.fetch_add(1);
  if (mine.sleepers.load() > 0) rpc::FutexWakeAll(mine.event);
}

absl::StatusOr<bool> SharedBoard::Await(int peer, absl::Time deadline,
                                        absl::FunctionRef<bool()> ready) {
  for (int i = 0; i < (crowded_ ? kCrowdedPolls : kPolls); ++i) {
    if (ready()) return true;
    if (!crowded_) Pause();
  }
  for (int i = 0; crowded_ && i < kYields; ++i) {
    sched_yield();
    if (ready()) return true;
  }
  Line& theirs = line(peer);
  while (true) {
    // The order matters. A change after `seen` was read makes the wait return at once. An earlier
    // change shows in ready().
    theirs.sleepers.fetch_add(1);
    const uint32_t seen = theirs.event.load();
    const bool arrived = ready();
    const absl::Status aborted = arrived ? absl::OkStatus() : CheckAborted();
    const absl::Duration left = arrived ? absl::ZeroDuration() : deadline - absl::Now();
    const bool sleeps = !arrived && aborted.ok() && left > absl::ZeroDuration();
    if (sleeps) rpc::FutexWait(theirs.event, seen, std::min(left, kSleep));
    theirs.sleepers.fetch_sub(1);
    if (arrived) return true;
    if (!aborted.ok()) return aborted;
    if (!sleeps) return false;
  }
}

absl::Status SharedBoard::Enter(const Post& post, const Waiter& waiter) {
  RETURN_IF_ERROR(CheckAborted());
  const uint64_t phase = ++phase_;
  Line& mine = line(rank_);
  mine.posts[phase % 2] = post;
  mine.entered.store(phase, std::memory_order_release);
  Notify();
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    Line& theirs = line(peer);
    ASSIGN_OR_RETURN(const bool arrived, Await(peer, waiter.deadline, [&] {
                       return theirs.entered.load(std::memory_order_acquire) >= phase;
                     }));
    if (!arrived) {
      return waiter.late(
          RanksBehind([&](const Line& line) { return line.entered.load() < phase; }));
    }
  }
  return absl::OkStatus();
}

absl::Status SharedBoard::AwaitRing(bool receives, bool sends, const Waiter& waiter) {
  bool arrived = true;
  if (receives) {
    const Line& left = line(Left());
    ASSIGN_OR_RETURN(arrived, Await(Left(), waiter.deadline, [&] {
                       return left.ring_sent.load(std::memory_order_acquire) > ring_taken_;
                     }));
  }
  if (sends && arrived) {
    const Line& right = line(Right());
    ASSIGN_OR_RETURN(arrived, Await(Right(), waiter.deadline, [&] {
                       return right.ring_taken.load(std::memory_order_acquire) + kRingSlots >
                              ring_sent_;
                     }));
  }
  return arrived ? absl::OkStatus() : waiter.late(SlowestInRing());
}

void SharedBoard::AdvanceRing(bool received, bool sent) {
  Line& mine = line(rank_);
  if (received) mine.ring_taken.store(++ring_taken_, std::memory_order_release);
  if (sent) mine.ring_sent.store(++ring_sent_, std::memory_order_release);
  Notify();
}

absl::Status SharedBoard::AwaitRoomTowards(int target, const Waiter& waiter, Fragment** fragment) {
  RETURN_IF_ERROR(CheckAborted());
  Channel& to = channel(rank_, target);
  const uint64_t sent = to.sent.load(std::memory_order_relaxed);
  ASSIGN_OR_RETURN(const bool arrived, Await(target, waiter.deadline, [&] {
                     return to.taken.load(std::memory_order_acquire) + kFragments > sent;
                   }));
  *fragment = &to.fragments[sent % kFragments];
  return arrived ? absl::OkStatus() : waiter.late(RankName(names_, target));
}

void SharedBoard::AdvanceSend(int target) {
  channel(rank_, target).sent.fetch_add(1, std::memory_order_release);
  Notify();
}

absl::Status SharedBoard::AwaitFragmentFrom(int source, const Waiter& waiter,
                                            const Fragment** fragment) {
  RETURN_IF_ERROR(CheckAborted());
  Channel& from = channel(source, rank_);
  const uint64_t taken = from.taken.load(std::memory_order_relaxed);
  ASSIGN_OR_RETURN(const bool arrived, Await(source, waiter.deadline, [&] {
                     return from.sent.load(std::memory_order_acquire) > taken;
                   }));
  *fragment = &from.fragments[taken % kFragments];
  return arrived ? absl::OkStatus() : waiter.late(RankName(names_, source));
}

void SharedBoard::AdvanceReceive(int source) {
  channel(source, rank_).taken.fetch_add(1, std::memory_order_release);
  Notify();
}

void SharedBoard::Abort(const absl::Status& reason) {
  Header& head = header();
  uint32_t none = 0;
  if (!head.abort_state.compare_exchange_strong(none, 1)) return;
  head.abort_rank = rank_;
  head.abort_code = static_cast<uint32_t>(reason.code());
  const std::string text(reason.message());
  std::strncpy(head.abort_text, text.c_str(), sizeof(head.abort_text) - 1);
  head.abort_state.store(2);
  for (int r = 0; r < size_; ++r) {
    line(r).event.fetch_add(1);
    rpc::FutexWakeAll(line(r).event);
  }
}

absl::Status SharedBoard::CheckAborted() const {
  const Header& head = header();
  const uint32_t state = head.abort_state.load(std::memory_order_acquire);
  if (state == 0) return absl::OkStatus();
  for (int i = 0; i < 1000 && head.abort_state.load() != 2; ++i) sched_yield();
  if (head.abort_state.load() != 2)
    return absl::AbortedError("aborted by a peer that did not live to say why");
  return absl::Status(
      static_cast<absl::StatusCode>(head.abort_code),
      absl::StrCat("aborted by ", RankName(names_, head.abort_rank), ": ", head.abort_text));
}

std::string SharedBoard::RanksBehind(absl::FunctionRef<bool(const Line&)> behind) const {
  std::string ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && behind(line(r)))
      absl::StrAppend(&ranks, ranks.empty() ? "" : ", ", RankName(names_, r));
  }
  return ranks;
}

// In a stalled ring every rank waits for a neighbour. The rank with the fewest messages is the one
// that stopped.
std::string SharedBoard::SlowestInRing() const {
  uint64_t fewest = ring_sent_;
  for (int r = 0; r < size_; ++r) fewest = std::min(fewest, line(r).ring_sent.load());
  std::string ranks =
      RanksBehind([&](const Line& line) { return line.ring_sent.load() == fewest; });
  return ranks.empty() ? RankName(names_, Left()) : ranks;
}

}  // namespace tandem::comm
