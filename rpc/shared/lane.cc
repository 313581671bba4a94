#include "rpc/shared/lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// Smaller slices are cheaper to copy, together with their neighbours, than to lend.
constexpr size_t kInPlaceBytes = 4096;
// A copied fragment takes at most 1 / kFragmentShare of the arena. So the receiver reads one
// fragment while the sender writes the next.
constexpr size_t kFragmentShare = 16;

}  // namespace

LaneSender::LaneSender(LaneControl& control, std::shared_ptr<SharedArena> arena)
    : control_(control), arena_(std::move(arena)), lent_(LaneControl::kSlots) {
  for (uint32_t slot = LaneControl::kSlots; slot-- > 0;) free_slots_.push_back(slot);
}

void LaneSender::Queue(SharedMessage message) {
  queue_.emplace_back();
  queue_.back().message = std::move(message);
}

absl::StatusOr<bool> LaneSender::Pump() {
  RETURN_IF_ERROR(Reap());
  bool posted = false;
  while (!queue_.empty()) {
    Outgoing& next = queue_.front();
    if (!PostFragment(&next)) {
      // The order matters: a release after the last look sees that the sender waits.
      control_.wants_room.store(1);
      if (!has_news()) return posted;
      RETURN_IF_ERROR(Reap());
      continue;
    }
    posted = true;
    if (next.slice < next.message.payload.slices().size()) continue;
    finished_.messages.push_back(std::move(next.message));
    queue_.pop_front();
  }
  return posted;
}

void LaneSender::Drop() {
  for (Outgoing& outgoing : queue_) finished_.messages.push_back(std::move(outgoing.message));
  queue_.clear();
}

absl::Status LaneSender::Reap() {
  const uint64_t released = control_.num_released.load();
  if (released - num_reaped_ > num_posted_ - num_reaped_)
    return absl::DataLossError("the peer released more than it was sent");
  while (num_reaped_ != released) {
    const uint32_t slot =
        control_.released[num_reaped_ % LaneControl::kSlots].load(std::memory_order_relaxed);
    if (slot >= LaneControl::kSlots || !lent_[slot].posted) {
      return absl::DataLossError(
          absl::StrCat("the peer released slot ", slot, ", which it was not sent"));
    }
    ++num_reaped_;
    if (lent_[slot].owner != nullptr) finished_.owners.push_back(std::move(lent_[slot].owner));
    lent_[slot] = {};
    free_slots_.push_back(slot);
  }
  return absl::OkStatus();
}

bool LaneSender::InPlace(const Payload::Slice& slice) const {
  return slice.size >= kInPlaceBytes && arena_->Holds(slice.data, slice.size);
}

bool LaneSender::PostFragment(Outgoing* outgoing) {
  if (free_slots_.empty()) return false;
  const auto& slices = outgoing->message.payload.slices();
  if (slices.empty()) {
    Post(nullptr, 0, outgoing->message, {true, nullptr, nullptr});
    return true;
  }
  const Payload::Slice& first = slices[outgoing->slice];
  if (outgoing->offset == 0 && InPlace(first)) {
    Post(first.data, first.size, outgoing->message, {true, first.owner, nullptr});
    ++outgoing->slice;
    return true;
  }
  size_t run = 0;
  for (size_t i = outgoing->slice;
       i < slices.size() && (i == outgoing->slice || !InPlace(slices[i])); ++i)
    run += slices[i].size;
  run -= outgoing->offset;
  auto copy = arena_->TakeUpTo(
      std::min(run, std::max(arena_->num_bytes() / kFragmentShare, Extents::kUnit)));
  if (copy == nullptr) return false;
  char* target = static_cast<char*>(copy->data());
  for (size_t left = copy->num_bytes(); left > 0;) {
    const Payload::Slice& slice = slices[outgoing->slice];
    const size_t count = std::min(left, slice.size - outgoing->offset);
    std::memcpy(target, slice.data + outgoing->offset, count);
    target += count;
    left -= count;
    outgoing->offset += count;
    if (outgoing->offset < slice.size) break;
    ++outgoing->slice;
    outgoing->offset = 0;
  }
  Post(copy->data(), copy->num_bytes(), outgoing->message, {true, nullptr, copy});
  return true;
}

void LaneSender::Post(const void* data, size_t num_bytes, const SharedMessage& message, Lent lent) {
  const uint32_t number = free_slots_.back();
  free_slots_.pop_back();
  lent_[number] = std::move(lent);
  LaneControl::Slot& slot = control_.slots[number];
  slot.offset.store(data == nullptr ? 0 : arena_->OffsetOf(data), std::memory_order_relaxed);
  slot.num_bytes.store(num_bytes, std::memory_order_relaxed);
  slot.message_bytes.store(message.payload.size(), std::memory_order_relaxed);
  slot.code.store(static_cast<uint32_t>(message.code), std::memory_order_relaxed);
  control_.posted[num_posted_ % LaneControl::kSlots].store(number, std::memory_order_relaxed);
  control_.num_posted.store(++num_posted_);
}

LaneReceiver::LaneReceiver(LaneControl& control, const char* arena, size_t num_bytes)
    : control_(control), arena_(arena), num_bytes_(num_bytes), held_(LaneControl::kSlots) {}

absl::StatusOr<std::optional<LaneReceiver::Fragment>> LaneReceiver::Next() {
  const uint64_t posted = control_.num_posted.load();
  if (posted == num_taken_) return std::nullopt;
  if (posted - num_taken_ > LaneControl::kSlots)
    return absl::DataLossError("the peer posted more than there are slots");
  const uint32_t number =
      control_.posted[num_taken_ % LaneControl::kSlots].load(std::memory_order_relaxed);
  if (number >= LaneControl::kSlots || held_[number]) {
    return absl::DataLossError(
        absl::StrCat("the peer posted slot ", number, ", which it does not have"));
  }
  const LaneControl::Slot& slot = control_.slots[number];
  const uint64_t offset = slot.offset.load(std::memory_order_relaxed),
                 size = slot.num_bytes.load(std::memory_order_relaxed);
  const uint64_t message_bytes = slot.message_bytes.load(std::memory_order_relaxed);
  const uint32_t code = slot.code.load(std::memory_order_relaxed);
  if (offset > num_bytes_ || size > num_bytes_ - offset || size > message_bytes ||
      (size == 0) != (message_bytes == 0)) {
    return absl::DataLossError(absl::StrCat("the peer posted bytes ", offset, " and ", size,
                                            " more of an arena of ", num_bytes_,
                                            ", for a message of ", message_bytes));
  }
  if (code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::DataLossError(absl::StrCat("the peer posted status code ", code));
  }
  ++num_taken_;
  held_[number] = true;
  return Fragment{number, arena_ + offset, size, message_bytes,
                  static_cast<absl::StatusCode>(code)};
}

bool LaneReceiver::Release(uint32_t slot) {
  TANDEM_CHECK(held_[slot]) << "slot " << slot << " was released twice";
  held_[slot] = false;
  control_.released[num_released_ % LaneControl::kSlots].store(slot, std::memory_order_relaxed);
  control_.num_released.store(++num_released_);
  return control_.wants_room.load() != 0 && control_.wants_room.exchange(0) != 0;
}

}  // namespace tandem::rpc
