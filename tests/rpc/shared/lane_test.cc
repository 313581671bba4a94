// Extents, arenas and lanes: the memory between the two ends of a shared-memory stream.
// Tests peers that keep to the protocol and peers that break it.
#include "rpc/shared/lane.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "rpc/shared/extents.h"

namespace tandem::rpc {
namespace {

constexpr size_t kUnit = Extents::kUnit;

TEST(ExtentsTest, TheFirstPieceThatFitsIsTakenAndPiecesGrowTogetherAgain) {
  Extents extents(8 * kUnit);
  const auto a = extents.Take(1), b = extents.Take(2 * kUnit), c = extents.Take(5 * kUnit);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(b->offset, kUnit);
  EXPECT_EQ(c->offset, 3 * kUnit);
  EXPECT_FALSE(extents.Take(1));
  EXPECT_FALSE(extents.TakeUpTo(1));
  extents.Give(*a);
  extents.Give(*c);
  EXPECT_FALSE(extents.Take(6 * kUnit));
  EXPECT_EQ(extents.TakeUpTo(7 * kUnit)->num_bytes, 5 * kUnit);
  extents.Give(*c);
  extents.Give(*b);
  EXPECT_EQ(extents.taken_bytes(), 0u);
  EXPECT_EQ(extents.Take(8 * kUnit)->offset, 0u);
}

TEST(ExtentsTest, RandomPiecesNeverOverlapAndAllComeBack) {
  std::mt19937 random(7);
  Extents extents(64 * kUnit);
  std::vector<Extent> taken;
  std::vector<bool> used(64);
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const auto extent = extents.Take(1 + random() % (9 * kUnit));
      if (!extent) continue;
      for (size_t unit = extent->offset / kUnit;
           unit < (extent->offset + extent->num_bytes) / kUnit; ++unit) {
        ASSERT_FALSE(used[unit]);
        used[unit] = true;
      }
      taken.push_back(*extent);
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      for (size_t unit = 0; unit < taken.back().num_bytes / kUnit; ++unit)
        used[taken.back().offset / kUnit + unit] = false;
      extents.Give(taken.back());
      taken.pop_back();
    }
  }
  for (const Extent& extent : taken) extents.Give(extent);
  EXPECT_TRUE(extents.Take(64 * kUnit));
}

// A lane whose two ends are in this process.
class SharedLaneTest : public testing::Test {
 protected:
  static constexpr size_t kArenaBytes = 32 * kUnit;

  SharedLaneTest()
      : memory_(*SharedMemory::Create(kControlBytes + kArenaBytes)),
        arena_(std::make_shared<SharedArena>(memory_, kControlBytes, kArenaBytes)),
        control_(*reinterpret_cast<LaneControl*>(memory_->data())),
        sender_(control_, arena_),
        receiver_(control_, memory_->data() + kControlBytes, kArenaBytes) {}

  void Send(std::string bytes) {
    sender_.Queue({Payload(std::move(bytes))});
    ASSERT_TRUE(sender_.Pump().ok());
  }
  // The bytes of the next fragment, or "-".
  std::string Next(LaneReceiver::Fragment* fragment) {
    const auto next = receiver_.Next();
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok() || !next->has_value()) return "-";
    *fragment = **next;
    return {fragment->data, fragment->num_bytes};
  }
  // Posts a first slot with these fields, as a peer that breaks the protocol may. Returns the
  // receiver's status.
  absl::Status NextAfterPosting(uint32_t number, uint64_t offset, uint64_t num_bytes,
                                uint64_t message_bytes, uint32_t code = 0) {
    LaneControl::Slot& slot = control_.slots[3];
    slot.offset = offset;
    slot.num_bytes = num_bytes;
    slot.message_bytes = message_bytes;
    slot.code = code;
    control_.posted[0] = number;
    control_.num_posted = 1;
    return LaneReceiver(control_, memory_->data() + kControlBytes, kArenaBytes).Next().status();
  }

  static constexpr size_t kControlBytes = (sizeof(LaneControl) + kUnit - 1) / kUnit * kUnit;
  const std::shared_ptr<SharedMemory> memory_;
  const std::shared_ptr<SharedArena> arena_;
  LaneControl& control_;
  LaneSender sender_;
  LaneReceiver receiver_;
  LaneReceiver::Fragment fragment_{};
};

TEST_F(SharedLaneTest, FragmentsComeInOrderAndGoBackInAnyOrder) {
  std::vector<LaneReceiver::Fragment> held(3);
  for (int round = 0; round < 300; ++round) {  // more than there are slots
    for (int i = 0; i < 3; ++i)
      Send(std::string(1 + static_cast<size_t>(round), static_cast<char>('a' + i)));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(Next(&held[static_cast<size_t>(i)]),
                std::string(1 + static_cast<size_t>(round), static_cast<char>('a' + i)));
    }
    ASSERT_EQ(Next(&fragment_), "-");
    for (const size_t i : {1, 2, 0}) receiver_.Release(held[i].slot);
  }
}

TEST_F(SharedLaneTest, AnEmptyMessageIsAMessage) {
  Send("");
  EXPECT_EQ(Next(&fragment_), "");
  EXPECT_EQ(fragment_.message_bytes, 0u);
}

TEST_F(SharedLaneTest, AMessageLargerThanTheArenaComesInFragmentsAsRoomAppears) {
  std::string message(5 * kArenaBytes + 17, '\0');
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<char>(i * 31 + (i >> 12));
  Send(message);
  std::string received;
  while (Next(&fragment_) != "-") {
    EXPECT_EQ(fragment_.message_bytes, message.size());
    received.append(fragment_.data, fragment_.num_bytes);
    EXPECT_EQ(receiver_.Release(fragment_.slot), sender_.waiting()) << received.size();
    ASSERT_TRUE(sender_.Pump().ok());
  }
  EXPECT_FALSE(sender_.waiting());
  EXPECT_TRUE(received == message);
}

TEST_F(SharedLaneTest, AReceiverThatHoldsEverythingStopsTheSenderAndHeldBytesStay) {
  std::vector<LaneReceiver::Fragment> held;
  for (int i = 0; i < 64; ++i) Send(std::string(kUnit, static_cast<char>('0' + i)));
  while (Next(&fragment_) != "-") held.push_back(fragment_);
  EXPECT_EQ(held.size(), 32u);
  EXPECT_TRUE(sender_.waiting());
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(std::string(held[i].data, held[i].num_bytes),
              std::string(kUnit, static_cast<char>('0' + i)));
  }
  EXPECT_TRUE(receiver_.Release(held[5].slot));
  EXPECT_FALSE(receiver_.Release(held[6].slot)) << "the sender was told already";
  ASSERT_TRUE(sender_.Pump().ok());
  EXPECT_EQ(Next(&fragment_), std::string(kUnit, static_cast<char>('0' + 32)));
}

TEST_F(SharedLaneTest, WhatIsMadeInTheArenaIsNotCopiedAndIsKeptUntilItIsReleased) {
  auto rows = arena_->Allocate(3 * kUnit);
  ASSERT_NE(rows, nullptr);
  std::memset(rows->data(), 'r', rows->num_bytes());
  const std::weak_ptr<Buffer> watch = rows;
  Payload payload(std::string("head"));
  payload.Append(rows->data(), rows->num_bytes(), rows);
  const void* const place = rows->data();
  rows = nullptr;
  sender_.Queue({std::move(payload)});
  ASSERT_TRUE(sender_.Pump().ok());
  EXPECT_EQ(Next(&fragment_), "head");
  receiver_.Release(fragment_.slot);
  EXPECT_EQ(Next(&fragment_), std::string(3 * kUnit, 'r'));
  EXPECT_EQ(fragment_.data, place);
  EXPECT_FALSE(watch.expired());
  receiver_.Release(fragment_.slot);
  ASSERT_TRUE(sender_.Pump().ok());
  EXPECT_FALSE(watch.expired()) << "it goes where the sender's caller holds no lock";
  sender_.TakeFinished();
  EXPECT_TRUE(watch.expired());
}

TEST_F(SharedLaneTest, MessagesInTheMakingLeaveHalfOfTheArenaToThoseBeforeThem) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  while (auto buffer = arena_->Allocate(kUnit)) buffers.push_back(std::move(buffer));
  EXPECT_EQ(buffers.size(), 16u);
  EXPECT_EQ(arena_->Allocate(kArenaBytes), nullptr);
  Send("still");
  EXPECT_EQ(Next(&fragment_), "still");
}

TEST_F(SharedLaneTest, OffsetsAndSizesOutOfRangeAreRefusedByTheReceiver) {
  const uint64_t most = ~uint64_t{0};
  EXPECT_TRUE(NextAfterPosting(3, 0, kArenaBytes, kArenaBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, 1, kArenaBytes, kArenaBytes)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, most, 1, 1)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, kArenaBytes + 1, 1, 1)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, 8, most, most)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, 0, 5, 4)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, 0, 0, 4)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(LaneControl::kSlots, 0, 4, 4)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(~0u, 0, 4, 4)));
  EXPECT_TRUE(absl::IsDataLoss(NextAfterPosting(3, 0, 4, 4, 17)));
  control_.num_posted = LaneControl::kSlots + 1;
  EXPECT_TRUE(absl::IsDataLoss(receiver_.Next().status()));
}

TEST_F(SharedLaneTest, ASlotThatTheReceiverHoldsIsRefusedByTheReceiver) {
  Send("a");
  ASSERT_EQ(Next(&fragment_), "a");
  control_.posted[1] = fragment_.slot;
  control_.num_posted = 2;
  EXPECT_TRUE(absl::IsDataLoss(receiver_.Next().status()));
}

TEST_F(SharedLaneTest, ReleasesOfWhatWasNeverPostedAreRefusedByTheSender) {
  Send("a");
  for (const uint32_t slot : {1u, LaneControl::kSlots, ~0u}) {
    control_.released[0] = slot;
    control_.num_released = 1;
    EXPECT_TRUE(absl::IsDataLoss(sender_.Pump().status())) << slot;
  }
  control_.num_released = 2;
  EXPECT_TRUE(absl::IsDataLoss(sender_.Pump().status()));
}

}  // namespace
}  // namespace tandem::rpc
