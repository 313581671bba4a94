// Promises that only host groups make: bits do not depend on who sums, and nothing is left in
// /dev/shm.
#include "trainer/comm/host/cpu_group.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sys/resource.h>
#include <sys/stat.h>

#include "absl/strings/str_format.h"
#include "kernels/base/random.h"
#include "rpc/shared/local_socket.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/ring_order.h"

namespace tandem::comm {
namespace {

template <class T>
ArrayView View(Array<T>& values) {
  return DenseView(values.data(), {static_cast<int64_t>(values.size())});
}

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

// Random numbers of very different magnitude: another order of summation gives other bits.
Array<float> Wild(int rank, int64_t count) {
  Array<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = RandomBits({7, static_cast<uint64_t>(rank)}, 0, i);
    values[i] = std::ldexp(UnitFloat(bits) - 0.5f, static_cast<int>(bits % 24));
  }
  return values;
}

using Results = std::vector<Array<float>>;  // by rank

Results ReduceWild(Kind kind, int size, SumOrder order, bool scatter, int64_t count) {
  Results results(size);
  RunRanks(kind, size, [&](ProcessGroup& group) {
    Array<float>& mine = results[group.rank()];
    Array<float> input = Wild(group.rank(), count * (scatter ? size : 1));
    mine.resize(count);
    if (scatter) {
      ASSERT_TRUE(group.ReduceScatter(View(mine), View(input), Args(ReduceOp::SUM, order))
                      .Wait(Soon())
                      .ok());
    } else {
      mine = input;
      ASSERT_TRUE(group.AllReduce(View(mine), Args(ReduceOp::SUM, order)).Wait(Soon()).ok());
    }
  });
  return results;
}

bool SameBits(const Array<float>& a, const Array<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class BitEqualityTest : public testing::TestWithParam<int> {};

TEST_P(BitEqualityTest, GroupsOfProcessesSumLikeTheThreadGroupOnEveryRank) {
  const int size = GetParam();
  for (const Kind kind : {Kind::SHARED_MEMORY, Kind::TCP}) {
    for (SumOrder order : {SumOrder::ANY, SumOrder::TREE}) {
      for (int64_t count :
           {int64_t{1001}, int64_t{40000}, (size <= 3 ? 5 : 1) * kChunkElements * size + 13}) {
        const Results threads = ReduceWild(Kind::THREAD, size, order, false, count);
        const Results processes = ReduceWild(kind, size, order, false, count);
        for (int r = 0; r < size; ++r) {
          EXPECT_TRUE(SameBits(threads[r], threads[0]))
              << "rank " << r << " of " << size << ", " << count;
          EXPECT_TRUE(SameBits(processes[r], threads[0]))
              << NameOf(kind) << " rank " << r << " of " << size << ", " << count;
        }
      }
      const Results threads = ReduceWild(Kind::THREAD, size, order, true, 400001);
      EXPECT_TRUE(threads == ReduceWild(kind, size, order, true, 400001)) << NameOf(kind);
    }
  }
}

TEST_P(BitEqualityTest, TreeOrderIsTheBalancedTreeOverRanks) {
  const int size = GetParam();
  std::function<float(int, int, int64_t)> tree = [&](int begin, int end, int64_t i) -> float {
    if (end - begin == 1) return Wild(begin, i + 1)[i];
    const int middle = begin + (end - begin + 1) / 2;
    return tree(begin, middle, i) + tree(middle, end, i);
  };
  const Results results = ReduceWild(Kind::SHARED_MEMORY, size, SumOrder::TREE, false, 300);
  for (int64_t i : {0, 1, 17, 255, 299}) EXPECT_EQ(results[0][i], tree(0, size, i)) << i;
}

TEST_P(BitEqualityTest, AnyOrderIsTheOrderOfTheRing) {
  const int size = GetParam();
  const int64_t count = 100 * size;
  const Results results = ReduceWild(Kind::SHARED_MEMORY, size, SumOrder::ANY, false, count);
  for (int chunk = 0; chunk < size; ++chunk) {
    const Range range = ChunkRange({0, count}, size, chunk);
    if (range.size() == 0) continue;
    float expected = Wild((chunk + 1) % size, count)[range.begin];
    for (int i = 2; i <= size; ++i) expected += Wild((chunk + i) % size, count)[range.begin];
    EXPECT_EQ(results[0][range.begin], expected) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BitEqualityTest, testing::Values(2, 3, 4, 7));

// The name is unlinked early, so a process that is killed at any moment leaves nothing.
TEST(CpuGroupTest, NothingIsInDevShmWhileMemoryIsSharedOut) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  std::thread waiting([&] {
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        CpuGroup::Create({&store, token, "world", 0, 2}, absl::Now() + absl::Milliseconds(300))
            .status()));
  });
  ASSERT_TRUE(store.Get("comm/world/segment", Soon()).ok());
  EXPECT_TRUE(SharedMemoryNames().empty());
  waiting.join();
}

TEST(CpuGroupTest, WhoDoesNotShowTheTokenGetsNoMemory) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  std::thread waiting([&] {
    const auto group =
        CpuGroup::Create({&store, token, "world", 0, 2}, absl::Now() + absl::Milliseconds(500));
    EXPECT_TRUE(absl::IsDeadlineExceeded(group.status())) << group.status();
  });
  ASSERT_TRUE(store.Get("comm/world/segment", Soon()).ok());
  const auto socket = rpc::LocalSocket::Connect(
      absl::StrFormat("tandem-comm-%016x", StableHash(absl::StrCat(token, "/world"))));
  ASSERT_TRUE(socket.ok()) << socket.status();
  ASSERT_TRUE((*socket)->Send("stranger", 8));
  std::string packet;
  int segment = -1;
  rpc::LocalSocket::Received received;
  while ((received = (*socket)->Receive(&packet, 100, &segment)) ==
         rpc::LocalSocket::Received::NOTHING)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(received, rpc::LocalSocket::Received::CLOSED);
  EXPECT_EQ(segment, -1);
  waiting.join();
}

TEST(CpuGroupTest, NothingIsInDevShmWhileTheGroupLives) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  auto live = [&](int rank) {
    auto group = CpuGroup::Create({&store, token, "world", rank, 2}, Soon());
    ASSERT_TRUE(group.ok()) << group.status();
    auto buffer = (*group)->Allocate(1000);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_TRUE((*group)->Barrier(Args()).Wait(Soon()).ok());
    EXPECT_TRUE(SharedMemoryNames().empty());
    ASSERT_TRUE((*group)->Barrier(Args()).Wait(Soon()).ok());
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
}

// The bytes of this process's shared memory that exist.
int64_t SharedBytes() {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat info;
    if (absl::StartsWith(target, "/memfd:tandem") && stat(entry.path().c_str(), &info) == 0)
      bytes += info.st_blocks * 512;
  }
  return bytes;
}

// Groups as a mesh makes them: all ranks vote, and both axes sum arrays.
TEST(CpuGroupTest, TheGroupsOfEightRanksUseLessThan48MegabytesInAnyLayout) {
  for (const int tp : {1, 2, 4, 8}) {
    RunRanks(Kind::SHARED_MEMORY, 8, [&](ProcessGroup& world) {
      const int rank = world.rank();
      Array<float> array(1 << 20);
      std::vector<std::unique_ptr<ProcessGroup>> axes;
      for (const int color : {rank / tp, rank % tp}) {
        auto axis = world.Split(color, rank, "axis", Soon());
        ASSERT_TRUE(axis.ok()) << axis.status();
        axes.push_back(*std::move(axis));
        for (const int64_t count : {8, 60000, 1 << 20}) {
          const ArrayView view = DenseView(array.data(), {count});
          ASSERT_TRUE(axes.back()->AllReduce(view, Args()).Wait(Soon()).ok());
        }
      }
      double vote = 1;
      ASSERT_TRUE(world.AllReduce(DenseView(&vote, {1}), Args()).Wait(Soon()).ok());
      EXPECT_GT(SharedBytes(), 1 << 20);
      EXPECT_LT(SharedBytes(), 48 << 20) << "tp " << tp;
      ASSERT_TRUE(world.Barrier(Args()).Wait(Soon()).ok());
    });
  }
}

TEST(CpuGroupTest, BuffersWithoutRoomInSharedMemoryAreReducedFromPrivateMemory) {
  RunRanks(Kind::SHARED_MEMORY, 2, [&](ProcessGroup& group) {
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_TRUE(group.Barrier(Args()).Wait(Soon()).ok());
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1 << 20, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    constexpr int64_t kCount = 1 << 20;
    const auto buffer = group.Allocate(kCount * sizeof(float));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(group.private_bytes(), kCount * sizeof(float));
    auto* const values = static_cast<float*>((*buffer)->data());
    std::fill_n(values, kCount, 1.0f + static_cast<float>(group.rank()));
    ASSERT_TRUE(group.AllReduce(DenseView(values, {kCount}), Args()).Wait(Soon()).ok());
    EXPECT_EQ(values[kCount - 1], 3);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  });
}

TEST(CpuGroupTest, ARankThatDoesNotJoinIsNamedAndNothingIsLeftBehind) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  const auto first =
      CpuGroup::Create({&store, token, "world", 0, 2}, absl::Now() + absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.status()));
  EXPECT_TRUE(Says(first.status(), "rank 1 of 2 did not join group 'world'")) << first.status();
  const auto second =
      CpuGroup::Create({&store, token, "other", 1, 2}, absl::Now() + absl::Milliseconds(50));
  EXPECT_TRUE(Says(second.status(), "rank 0 of 2 did not open group 'other'")) << second.status();
  EXPECT_TRUE(SharedMemoryNames().empty());
}

}  // namespace
}  // namespace tandem::comm
