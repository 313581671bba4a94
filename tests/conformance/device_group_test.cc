// Device groups beyond the suite of all groups: how NCCL is chosen, how NCCL fails, and that NCCL
// leaves nothing behind.
// Runs on the emulated device, over the stand-in for NCCL.
#include "trainer/comm/device/device_group.h"

#include <cmath>

#include "kernels/base/dynamic_library.h"
#include "tests/conformance/group_harness.h"
#include "tests/emulator/nccl_emulated.h"
#include "trainer/comm/combine.h"
#include "trainer/comm/device/nccl_group.h"
#include "trainer/comm/host/thread_group.h"

namespace tandem::comm {
namespace {

constexpr Device kDevice{DeviceKind::CUDA, 0};

EmulatedNccl& StandIn() {
  EmulatedNccl* stand_in = nullptr;
  const auto library = DynamicLibrary::Load({"libnccl.so.2"});
  EXPECT_TRUE(library.ok()) << library.status();
  const absl::Status found = library->Find(kEmulatedNccl, stand_in);
  EXPECT_TRUE(found.ok()) << found;
  return *stand_in;
}

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

class DeviceGroupTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(stand_in_.live_communicators, 0);
    EXPECT_EQ(stand_in_.misuses, expected_misuses_);
    stand_in_.misuses = 0;
    stand_in_.tells_peers = false;
    stand_in_.fails_init = false;
    stand_in_.async_error_rank = -1;
  }

  // Makes a device group on every rank of a thread group and gives it to `body`.
  void OnRanks(int size, DeviceGroupOptions options,
               const std::function<void(int, absl::StatusOr<DeviceGroup>)>& body) {
    auto hosts = ThreadGroup::Create(size, "world");
    options.store = &store_;
    options.name = absl::StrCat("world/device", num_groups_++);
    options.device = kDevice;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank, mine = options]() mutable {
        mine.host = hosts[rank].get();
        body(rank, MakeDeviceGroup(mine, absl::Now() + absl::Seconds(5)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void ExpectSums(ProcessGroup& group) {
    Array<float> values(1001, static_cast<float>(group.rank() + 1));
    ASSERT_TRUE(group.AllReduce(DenseView(values.data(), {1001}), Args()).Wait(Soon()).ok());
    EXPECT_EQ(values[1000], static_cast<float>(group.size() * (group.size() + 1) / 2));
  }

  rpc::MemoryStore store_;
  EmulatedNccl& stand_in_ = StandIn();
  int expected_misuses_ = 0, num_groups_ = 0;
};

TEST_F(DeviceGroupTest, NcclIsTakenWhereItIs) {
  const int before = stand_in_.num_operations;
  OnRanks(2, {}, [&](int, absl::StatusOr<DeviceGroup> made) {
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(absl::StrContains(made->note, "NCCL")) << made->note;
    ExpectSums(*made->group);
  });
  EXPECT_GT(stand_in_.num_operations, before);
}

TEST_F(DeviceGroupTest, RanksOfOneCardGoThroughTheHostUnlessTheJobWantsNccl) {
  for (const Transport transport : {Transport::ANY, Transport::HOST, Transport::NCCL}) {
    const int before = stand_in_.num_operations;
    DeviceGroupOptions options;
    options.shares_device = transport != Transport::HOST;
    options.transport = transport;
    options.timeout = absl::Seconds(5);
    OnRanks(2, options, [&](int, absl::StatusOr<DeviceGroup> made) {
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(absl::StrContains(made->note, "the host's memory"), transport != Transport::NCCL)
          << made->note;
      ExpectSums(*made->group);
    });
    EXPECT_EQ(stand_in_.num_operations > before, transport == Transport::NCCL);
  }
}

TEST_F(DeviceGroupTest, NcclThatDoesNotStartGivesWayAndSaysWhyOrIsAnError) {
  stand_in_.fails_init = true;
  for (const Transport transport : {Transport::ANY, Transport::NCCL}) {
    DeviceGroupOptions options;
    options.transport = transport;
    OnRanks(2, options, [&](int, absl::StatusOr<DeviceGroup> made) {
      if (transport == Transport::NCCL) {
        EXPECT_FALSE(made.ok());
        EXPECT_TRUE(Says(made.status(), "Duplicate GPU")) << made.status();
        return;
      }
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_TRUE(absl::StrContains(made->note, "Duplicate GPU")) << made->note;
      ExpectSums(*made->group);
    });
  }
}

TEST_F(DeviceGroupTest, RankThatDoesNotJoinIsNamed) {
  const auto alone = [&](int rank, const char* name) {
    return MakeNcclGroup(
               {.store = &store_, .name = name, .rank = rank, .size = 3, .device = kDevice},
               absl::Now() + absl::Milliseconds(200))
        .status();
  };
  absl::Status first;
  std::thread other([&] { (void)alone(2, "one"); });
  first = alone(0, "one");
  other.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(first)) << first;
  EXPECT_TRUE(Says(first, "rank 1 of 3 did not join group 'one'")) << first;
  const absl::Status second = alone(1, "two");
  EXPECT_TRUE(absl::IsDeadlineExceeded(second)) << second;
  EXPECT_TRUE(Says(second, "rank 0 of 3 did not open group 'two'")) << second;
}

TEST_F(DeviceGroupTest, AnErrorBetweenOperationsIsFoundByTheWatchAndReachesThePeers) {
  auto groups = MakeGroups(Kind::NCCL, 2, store_, absl::Seconds(20));
  stand_in_.async_error_rank = 1;
  absl::SleepFor(absl::Seconds(1));
  for (auto& group : groups) {
    const absl::Status status = group->Barrier(Args()).Wait(Soon());
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  EXPECT_TRUE(Says(groups[0]->Barrier(Args()).Wait(Soon()), "aborted by rank 1"));
}

TEST_F(DeviceGroupTest, AGroupThatFailsInTheMidstOfWorkLeavesTheArraysAlone) {
  auto groups = MakeGroups(Kind::NCCL, 2, store_, absl::Milliseconds(200));
  Array<float> values(1000, 3);
  const absl::Status status =
      groups[0]->Await(groups[0]->AllReduce(DenseView(values.data(), {1000}), Args()), Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(Says(status, "rank 1 did not arrive")) << status;
  EXPECT_EQ(values[999], 3);
  groups[0].reset();
}

TEST_F(DeviceGroupTest, AnAbortThatHangsInNcclIsLeftBehind) {
  auto groups = MakeGroups(Kind::NCCL, 2, store_, absl::Milliseconds(200));
  Array<float> values(10, 1);
  stand_in_.abort_hangs = true;
  const absl::Time start = absl::Now();
  const absl::Status status =
      groups[0]->Await(groups[0]->AllReduce(DenseView(values.data(), {10}), Args()), Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  groups.clear();
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  stand_in_.abort_hangs = false;
}

// Values of many magnitudes: another order of sums gives other bits.
Array<float> Wild(int rank, int64_t count) {
  Array<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = static_cast<uint64_t>(i * 64 + rank + 1) * 0x9e3779b97f4a7c15u;
    values[i] =
        std::ldexp(static_cast<float>(bits >> 40) - 8388608.0f, static_cast<int>(bits >> 35 & 15));
  }
  return values;
}

// The sums of `size` ranks' values in the order of ring_order.h's tree.
Array<float> TreeSums(int size, int64_t count) {
  std::vector<Array<float>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(Wild(rank, count));
  Array<float> sums(count);
  char* const to[] = {reinterpret_cast<char*>(sums.data())};
  ReduceOverRanks(
      {DType::F32, ReduceOp::SUM, SumOrder::TREE, size},
      [&](int rank) { return reinterpret_cast<const char*>(all[rank].data()); }, to, count);
  return sums;
}

TEST_F(DeviceGroupTest, TreesOverNcclHaveTheBitsOfOtherGroupsTrees) {
  for (const int size : {3, 5}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001},
                                size * (int64_t{1} << 18) + 1003}) {  // one step and a bit
      const Array<float> sums = TreeSums(size, count);
      RunRanks(Kind::NCCL, size, [&](ProcessGroup& group) {
        Array<float> values = Wild(group.rank(), count);
        ASSERT_TRUE(
            group.AllReduce(DenseView(values.data(), {count}), Args(ReduceOp::SUM, SumOrder::TREE))
                .Wait(Soon())
                .ok());
        EXPECT_TRUE(values == sums) << size << " ranks, " << count;
      });
    }
  }
}

TEST_F(DeviceGroupTest, PartsOfTreesOverNcclToo) {
  constexpr int kSize = 3;
  constexpr int64_t kCount = (int64_t{1} << 18) + 5;
  const Array<float> sums = TreeSums(kSize, kSize * kCount);
  RunRanks(Kind::NCCL, kSize, [&](ProcessGroup& group) {
    Array<float> values = Wild(group.rank(), kSize * kCount), part(kCount);
    const Work work = group.ReduceScatter(DenseView(part.data(), {kCount}),
                                          DenseView(values.data(), {kSize * kCount}),
                                          Args(ReduceOp::SUM, SumOrder::TREE));
    ASSERT_TRUE(work.Wait(Soon()).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), sums.begin() + group.rank() * kCount))
        << group.rank();
  });
}

TEST_F(DeviceGroupTest, AMessageRoundTheRingInBothOrders) {
  RunRanks(Kind::NCCL, 4, [](ProcessGroup& group) {
    Array<int64_t> mine(5, group.rank()), received(5, -1);
    const int next = (group.rank() + 1) % 4, previous = (group.rank() + 3) % 4;
    const ArrayView out = DenseView(mine.data(), {5}), in = DenseView(received.data(), {5});
    const bool even = group.rank() % 2 == 0;
    const Work first = even ? group.Send(out, next, Args()) : group.Recv(in, previous, Args());
    const Work second = even ? group.Recv(in, previous, Args()) : group.Send(out, next, Args());
    ASSERT_TRUE(first.Wait(Soon()).ok());
    ASSERT_TRUE(second.Wait(Soon()).ok());
    EXPECT_EQ(received[4], previous);
  });
}

}  // namespace
}  // namespace tandem::comm
