#include "rpc/shared/link.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "rpc/grpc_bytes.h"

namespace tandem::rpc {

namespace {

// Copies smaller fragments, because holding costs as much.
constexpr size_t kHoldBytes = size_t{64} << 10;
constexpr int kMaxPieces = 16;    // pieces of a message; the rest is copied into one piece
constexpr size_t kHeldShare = 4;  // at most 1 / kHeldShare of an arena may be held
constexpr uint32_t kMaxHeld = LaneControl::kSlots / 2;  // fragments; keeps the other slots moving

size_t LaneOffset(size_t control_bytes, size_t arena_bytes, int lane) {
  const size_t unit = Extents::kUnit;
  return (control_bytes + unit - 1) / unit * unit + static_cast<size_t>(lane) * arena_bytes;
}

}  // namespace

// The part that both sides write. Side i sends on lane i.
struct SharedLink::Control {
  struct alignas(64) Sleep {
    std::atomic<uint32_t> asleep;  // this side's poller sleeps
  };
  Sleep sides[2];
  LaneControl lanes[2];
};

// Keeps a fragment and its memory.
class SharedLink::Held {
 public:
  Held(std::shared_ptr<SharedLink> link, uint32_t slot, size_t num_bytes)
      : link_(std::move(link)), slot_(slot), num_bytes_(num_bytes) {}
  ~Held() { link_->Release(slot_, num_bytes_); }

 private:
  const std::shared_ptr<SharedLink> link_;
  const uint32_t slot_;
  const size_t num_bytes_;
};

size_t SharedLink::SegmentBytes(size_t arena_bytes) {
  return LaneOffset(sizeof(Control), arena_bytes, 2);
}

SharedLink::SharedLink(std::shared_ptr<SharedMemory> memory, size_t arena_bytes, Side side,
                       std::shared_ptr<LocalSocket> socket)
    : memory_(std::move(memory)),
      arena_bytes_(arena_bytes),
      side_(side),
      socket_(std::move(socket)),
      arena_(std::make_shared<SharedArena>(
          memory_, LaneOffset(sizeof(Control), arena_bytes, static_cast<int>(side)), arena_bytes)),
      sender_(control().lanes[static_cast<int>(side)], arena_),
      receiver_(
          control().lanes[1 - static_cast<int>(side)],
          memory_->data() + LaneOffset(sizeof(Control), arena_bytes, 1 - static_cast<int>(side)),
          arena_bytes) {
  TANDEM_CHECK_EQ(memory_->num_bytes(), SegmentBytes(arena_bytes));
}

SharedLink::Control& SharedLink::control() const {
  return *reinterpret_cast<Control*>(memory_->data());
}

std::shared_ptr<Buffer> SharedLink::Allocate(size_t num_bytes) {
  auto buffer = closed_ ? nullptr : arena_->Allocate(num_bytes);
  return buffer != nullptr ? std::move(buffer) : Buffer::Allocate(num_bytes);
}

void SharedLink::Ring() {
  std::atomic<uint32_t>& asleep = control().sides[1 - static_cast<int>(side_)].asleep;
  if (asleep.load() == 0 || asleep.exchange(0) == 0) return;
  const char ring = 'r';
  // A ring that cannot be sent is not needed: others are unread, or the peer is gone.
  socket_->Send(&ring, sizeof ring);
}

absl::StatusOr<bool> SharedLink::Pump() {
  bool posted = false;
  while (true) {
    // Destroyed after the lock is released, before the next look for room.
    LaneSender::Finished finished;
    absl::MutexLock lock(&sending_);
    ASSIGN_OR_RETURN(const bool more, sender_.Pump());
    posted |= more;
    finished = sender_.TakeFinished();
    if (!sender_.waiting() || (finished.owners.empty() && finished.messages.empty())) return posted;
  }
}

void SharedLink::Send(SharedMessage message) {
  if (closed_) return;
  {
    absl::MutexLock lock(&sending_);
    if (closed_) return;
    const bool first = !sender_.waiting();
    sender_.Queue(std::move(message));
    if (!first) return;
  }
  const absl::StatusOr<bool> posted = Pump();
  if (!posted.ok()) return Close();
  if (*posted) Ring();
}

absl::StatusOr<bool> SharedLink::Step() {
  std::atomic<uint32_t>& asleep = control().sides[static_cast<int>(side_)].asleep;
  if (asleep.load(std::memory_order_relaxed) != 0) asleep.store(0);
  {
    absl::MutexLock lock(&sending_);
    if (!sender_.waiting()) return false;
  }
  ASSIGN_OR_RETURN(const bool posted, Pump());
  if (posted) Ring();
  return posted;
}

bool SharedLink::Rest(bool takes_messages) {
  std::atomic<uint32_t>& asleep = control().sides[static_cast<int>(side_)].asleep;
  asleep.store(1);  // before the last look, so that a later sender rings
  const bool nothing = [this, takes_messages] {
    {
      absl::MutexLock lock(&receiving_);
      if (takes_messages && receiver_.has_news()) return false;
    }
    absl::MutexLock lock(&sending_);
    return !sender_.waiting() || !sender_.has_news();
  }();
  if (!nothing) asleep.store(0);
  return nothing || closed_;
}

void SharedLink::Release(uint32_t slot, size_t held_bytes) {
  bool waited;
  {
    absl::MutexLock lock(&receiving_);
    held_bytes_ -= held_bytes;
    num_held_ -= held_bytes > 0;
    waited = receiver_.Release(slot);
  }
  if (waited) Ring();
}

absl::StatusOr<std::optional<SharedMessage>> SharedLink::Take() {
  // After a refused fragment nothing can be read as a message.
  if (!refused_.ok()) return refused_;
  absl::StatusOr<std::optional<SharedMessage>> message = TakeNext();
  refused_ = message.status();
  return message;
}

absl::StatusOr<std::optional<SharedMessage>> SharedLink::TakeNext() {
  while (true) {
    std::optional<LaneReceiver::Fragment> fragment;
    {
      absl::MutexLock lock(&receiving_);
      ASSIGN_OR_RETURN(fragment, receiver_.Next());
    }
    if (!fragment.has_value()) return std::nullopt;
    RETURN_IF_ERROR(AddFragment(*fragment));
    if (num_taken_ < message_bytes_) continue;
    num_fragments_ = 0;
    rest_ = nullptr;
    return std::exchange(partial_, {});
  }
}

absl::Status SharedLink::AddFragment(const LaneReceiver::Fragment& fragment) {
  if (num_fragments_++ == 0) {
    message_bytes_ = fragment.message_bytes;
    num_taken_ = 0;
    partial_.code = fragment.code;
    if (message_bytes_ > size_t{kMaxMessageBytes}) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a message of ", message_bytes_, " bytes, the limit is ", kMaxMessageBytes));
    }
  } else if (fragment.message_bytes != message_bytes_ ||
             fragment.num_bytes > message_bytes_ - num_taken_) {
    return absl::DataLossError("the peer posted fragments that are no message");
  }
  const bool hold = [&] {
    absl::MutexLock lock(&receiving_);
    if (rest_ != nullptr || fragment.num_bytes < kHoldBytes || num_held_ == kMaxHeld ||
        held_bytes_ + fragment.num_bytes > arena_bytes_ / kHeldShare) {
      return false;
    }
    held_bytes_ += fragment.num_bytes;
    ++num_held_;
    return true;
  }();
  if (hold) {
    partial_.payload.Append(
        fragment.data, fragment.num_bytes,
        std::make_shared<const Held>(shared_from_this(), fragment.slot, fragment.num_bytes));
    num_taken_ += fragment.num_bytes;
  } else {
    Copy(fragment);
  }
  return absl::OkStatus();
}

void SharedLink::Copy(const LaneReceiver::Fragment& fragment) {
  const bool last_piece =
      rest_ == nullptr && (fragment.num_bytes >= kHoldBytes || num_fragments_ >= kMaxPieces);
  if (last_piece) {
    rest_ = Buffer::Allocate(message_bytes_ - num_taken_);
    partial_.payload.Append(rest_->data(), rest_->num_bytes(), rest_);
  }
  if (rest_ != nullptr) {
    const size_t rest_begin = message_bytes_ - rest_->num_bytes();
    std::memcpy(static_cast<char*>(rest_->data()) + (num_taken_ - rest_begin), fragment.data,
                fragment.num_bytes);
  } else if (fragment.num_bytes > 0) {
    const auto piece = Buffer::Allocate(fragment.num_bytes);
    std::memcpy(piece->data(), fragment.data, fragment.num_bytes);
    partial_.payload.Append(piece->data(), piece->num_bytes(), piece);
  }
  num_taken_ += fragment.num_bytes;
  Release(fragment.slot, 0);
}

void SharedLink::End() {
  Close();
  partial_ = {};
  rest_ = nullptr;
  LaneSender::Finished finished;
  absl::MutexLock lock(&sending_);
  sender_.Drop();
  finished = sender_.TakeFinished();
}

void SharedLink::Close() {
  closed_ = true;
  socket_->Shutdown();
}

}  // namespace tandem::rpc
