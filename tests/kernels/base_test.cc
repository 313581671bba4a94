#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/alternate_stack.h"
#include "kernels/base/crc32c.h"
#include "kernels/base/machine_memory.h"
#include "kernels/base/out_of_memory.h"
#include "kernels/base/params_hash.h"
#include "kernels/base/random.h"
#include "kernels/base/thread_pool.h"
#include "kernels/memory/block_cache.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/growing_memory.h"
#include "kernels/memory/large_memory.h"
#include "tests/support/temp_folder.h"

namespace tandem {
namespace {

// Known answers of the Random123 distribution, philox4x32 with 10 rounds.
TEST(PhiloxTest, MatchesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(PhiloxBlock(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(PhiloxBlock(ones, ones, ones),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_EQ(PhiloxBlock(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, ElementTakesItsWordOfItsBlock) {
  const RandomKey key{3, 4};
  for (uint64_t element : {0u, 1u, 2u, 3u, 4u, 1001u}) {
    EXPECT_EQ(RandomBits(key, 5, element), PhiloxBlock(FoldKey(key), 5, element / 4)[element % 4]);
  }
}

TEST(PhiloxTest, DropoutTakesHalvesOfWords) {
  const RandomKey key{3, 4};
  for (uint64_t element : {0u, 1u, 2u, 7u, 8u, 1001u}) {
    const uint32_t word = PhiloxBlock(FoldKey(key), 5, element / 8)[element % 8 / 2];
    EXPECT_EQ(DropoutBits(key, 5, element), element % 2 == 0 ? word % 65536 : word / 65536);
  }
  EXPECT_EQ(DropThreshold(0), 0u);
  EXPECT_EQ(DropThreshold(0.5), 32768u);
  EXPECT_EQ(DropThreshold(0.2), 13107u);
  EXPECT_EQ(DropThreshold(0.9999999), 65535u);
  EXPECT_EQ(KeepScale(DropThreshold(0.75)), 4);
}

TEST(PhiloxTest, StreamsDifferBySeedIdAndStep) {
  std::set<uint32_t> seen;
  for (uint64_t seed : {1, 2}) {
    for (uint64_t id : {1, 2}) {
      for (uint64_t step : {1, 2}) seen.insert(RandomBits({seed, id}, step, 9));
    }
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(PhiloxTest, UniformAndNormalHaveTheirMoments) {
  double sum = 0, normal_sum = 0, normal_square = 0;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const float u = UnitFloat(RandomBits({1, 1}, 0, i));
    ASSERT_GT(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
    const double z = RandomNormal({1, 1}, 0, i);
    normal_sum += z;
    normal_square += z * z;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / n, 0, 0.03);
  EXPECT_NEAR(normal_square / n, 1, 0.04);
}

TEST(PhiloxTest, BelowStaysInRangeAndReachesBothEnds) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(RandomBelow({1, 1}, 0, i, 5));
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3, 4}));
}

TEST(Crc32cTest, LongInputsAreWhatTheyAreInSmallPieces) {
  std::string bytes;
  for (uint32_t i = 0; i < 10'000; ++i) bytes += static_cast<char>(Fmix64(i));
  for (size_t begin : {0, 1, 7}) {
    for (size_t size : {3071, 3072, 3073, 6143, 6144, 9220, 9990}) {
      uint32_t in_pieces = 0;
      for (size_t done = 0; done < size; done += 13) {
        in_pieces =
            Crc32c(in_pieces, bytes.data() + begin + done, std::min<size_t>(13, size - done));
      }
      EXPECT_EQ(Crc32c(0, bytes.data() + begin, size), in_pieces) << begin << " " << size;
    }
  }
}

TEST(Crc32cTest, MatchesTheCheckValueAndContinues) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, "", 0), 0u);
  for (size_t cut = 0; cut <= 9; ++cut) {
    EXPECT_EQ(Crc32c(Crc32c(0, "123456789", cut), "123456789" + cut, 9 - cut), 0xe3069283u) << cut;
  }
  const std::vector<char> zeros(32);  // RFC 3720, appendix B.4
  EXPECT_EQ(Crc32c(0, zeros.data(), 32), 0x8a9136aau);
}

TEST(ParamsHashTest, DependsOnOwnerSlotIndexAndBits) {
  const uint64_t owner = DenseOwner("a.weight");
  const absl::uint128 base = HashScalar(owner, 0, 1, 2);
  EXPECT_EQ(base, HashScalar(DenseOwner("a.weight"), 0, 1, 2));
  EXPECT_NE(base, HashScalar(DenseOwner("b.weight"), 0, 1, 2));
  EXPECT_NE(base, HashScalar(owner, 1, 1, 2));
  EXPECT_NE(base, HashScalar(owner, 0, 2, 2));
  EXPECT_NE(base, HashScalar(owner, 0, 1, 3));
  EXPECT_NE(RowOwner("item", 1), RowOwner("item", 2));
  EXPECT_NE(RowOwner("item", 1), RowOwner("user", 1));
}

TEST(BufferTest, AllocatesAlignedMemoryAlsoForNothing) {
  for (size_t size : {0, 1, 63, 64, 1000}) {
    const std::shared_ptr<Buffer> buffer = Buffer::Allocate(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->num_bytes(), size);
  }
}

TEST(BufferTest, AdoptedMemoryIsReleasedOnceWithTheLastOwner) {
  int released = 0;
  char memory[8];
  std::shared_ptr<Buffer> buffer = Buffer::Adopt(memory, 8, [&] { ++released; });
  std::shared_ptr<Buffer> other = buffer;
  buffer.reset();
  EXPECT_EQ(released, 0);
  other.reset();
  EXPECT_EQ(released, 1);
}

// Counts the blocks that come from the system while `body` runs.
template <class Body>
uint64_t SystemBlocksDuring(const Body& body) {
  const uint64_t before = BlockCache::num_system_blocks();
  body();
  return BlockCache::num_system_blocks() - before;
}

#ifdef TANDEM_SANITIZED
#define SKIP_UNDER_SANITIZERS() \
  GTEST_SKIP() << "memory comes from the sanitizer, which keeps no idle blocks"
#else
#define SKIP_UNDER_SANITIZERS() static_cast<void>(0)
#endif

TEST(BlockCacheTest, FreedMemoryServesTheNextRequestOfUpToHalfItsSize) {
  SKIP_UNDER_SANITIZERS();
  const size_t size = 12345678;  // nobody else's
  void* first = Buffer::Allocate(size)->data();
  for (size_t next : {size, size - 1000, size / 2 + 1}) {
    EXPECT_EQ(SystemBlocksDuring([&] { EXPECT_EQ(Buffer::Allocate(next)->data(), first) << next; }),
              0u);
  }
  EXPECT_EQ(SystemBlocksDuring([&] { Buffer::Allocate(size / 4); }), 1u)
      << "a quarter would waste the rest";
}

TEST(LargeMemoryTest, LargeArraysBeginAHugePageAndOthersACacheLine) {
  SKIP_UNDER_SANITIZERS();
  for (size_t size : {size_t{0}, size_t{1}, size_t{64}, kHugePage / 2 - 1, kHugePage / 2, kHugePage,
                      kHugePage + 1, 3 * kHugePage / 2}) {
    char* data = static_cast<char*>(AllocateArray(size));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (size < kHugePage / 2 ? kCacheLine : kHugePage),
              0u)
        << size;
    std::memset(data, 1, size);
    std::free(data);
  }
}

TEST(LargeMemoryTest, MoreThanThereIsIsNull) {
  SKIP_UNDER_SANITIZERS();
  EXPECT_EQ(AllocateArray(size_t{1} << 62), nullptr);
}

TEST(BlockCacheTest, EveryByteOfEverySizeBelongsToOneBufferAlone) {
  std::vector<std::shared_ptr<Buffer>> held;
  for (size_t size = 0; size < 3000; size += 7) {
    held.push_back(Buffer::Allocate(size));
    std::memset(held.back()->data(), static_cast<int>(held.size() % 251), size);
    if (held.size() % 3 == 0) held[held.size() / 2].reset();
  }
  for (size_t i = 0; i < held.size(); ++i) {
    if (!held[i]) continue;
    const auto* bytes = static_cast<const unsigned char*>(held[i]->data());
    for (size_t b = 0; b < held[i]->num_bytes(); ++b)
      ASSERT_EQ(bytes[b], (i + 1) % 251) << "buffer " << i << ", byte " << b;
  }
}

// Takes `count` blocks of `each` bytes, gives them back, and returns their addresses.
std::set<void*> BlocksOf(BlockCache& cache, size_t each, int count) {
  std::vector<BlockCache::Block> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(cache.Take(each));
  std::set<void*> places;
  for (const BlockCache::Block& block : blocks) {
    places.insert(block.data);
    cache.Return(block);
  }
  return places;
}

TEST(BlockCacheTest, CacheThatKeepsAllNeverGivesABlockBack) {
  BlockCache cache({}, BlockCache::Keep::ALL);
  const std::set<void*> large = BlocksOf(cache, 4 << 20, 1), middle = BlocksOf(cache, 1 << 20, 4);
  BlocksOf(cache, 256 << 10, 4);  // 9 MiB: more than twice what was ever in use
  EXPECT_EQ(SystemBlocksDuring([&] {
              EXPECT_EQ(BlocksOf(cache, 4 << 20, 1), large);
              EXPECT_EQ(BlocksOf(cache, 1 << 20, 4), middle);
            }),
            0u);
}

TEST(BlockCacheTest, MemoryFreedOnAnotherThreadComesHome) {
  SKIP_UNDER_SANITIZERS();
  const size_t size = 23456789;
  std::shared_ptr<Buffer> buffer = Buffer::Allocate(size);
  void* data = buffer->data();
  std::thread([moved = std::move(buffer)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(SystemBlocksDuring([&] { EXPECT_EQ(Buffer::Allocate(size)->data(), data); }), 0u);
}

TEST(BlockCacheTest, BufferOutlivesTheThreadThatAllocatedIt) {
  std::shared_ptr<Buffer> buffer;
  std::thread([&] { buffer = Buffer::Allocate(1 << 20); }).join();
  std::memset(buffer->data(), 1, buffer->num_bytes());
  buffer.reset();
}

TEST(BlockCacheTest, IdleMemoryIsBoundedByTwiceWhatWasEverInUse) {
  SKIP_UNDER_SANITIZERS();
  std::thread([] {  // a fresh cache
    for (size_t size : {4u << 20, 1u << 20, 256u << 10}) Buffer::Allocate(size).reset();
    EXPECT_EQ(SystemBlocksDuring([] { Buffer::Allocate(4 << 20); }), 0u)
        << "5.25 MiB idle are below twice 4 MiB";
    std::vector<std::shared_ptr<Buffer>> held;
    for (int i = 0; i < 4; ++i) held.push_back(Buffer::Allocate(1 << 20));
    held.clear();  // 8.25 MiB
    EXPECT_EQ(SystemBlocksDuring([] { Buffer::Allocate(4 << 20); }), 0u);
    EXPECT_EQ(SystemBlocksDuring([] { Buffer::Allocate(256 << 10); }), 1u)
        << "the block that rested longest was not freed";
  })
      .join();
}

TEST(ThreadPoolTest, RunsEachTaskOnce) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    for (int64_t num_tasks : {0, 1, 3, 17, 1000}) {
      std::vector<std::atomic<int>> runs(num_tasks);
      pool.ParallelFor(num_tasks, [&](int64_t i) { runs[i].fetch_add(1); });
      for (int64_t i = 0; i < num_tasks; ++i)
        ASSERT_EQ(runs[i].load(), 1) << i << " of " << num_tasks;
    }
  }
}

// Threads that spin for the next loop, threads that fall asleep between two loops, and more threads
// than cores.
TEST(ThreadPoolTest, LoopsFindTheThreadsAwakeAndAsleep) {
  for (int num_threads : {2, 3, 2 * static_cast<int>(std::thread::hardware_concurrency()) + 1}) {
    ThreadPool pool(num_threads);
    int64_t expected = 0;
    std::atomic<int64_t> sum{0};
    std::mutex mutex;
    std::set<std::thread::id> seen;
    for (int round = 0; round < 300; ++round) {
      if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
      pool.ParallelFor(num_threads, [&](int64_t i) {
        sum.fetch_add(i + 1);
        const std::lock_guard<std::mutex> lock(mutex);
        seen.insert(std::this_thread::get_id());
      });
      expected += num_threads * (num_threads + 1) / 2;
      ASSERT_EQ(sum.load(), expected) << "round " << round << " returned before its last task";
    }
    EXPECT_LE(static_cast<int>(seen.size()), num_threads);
  }
}

TEST(ThreadPoolTest, WaitingTasksOccupyEveryThread) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> inside{0};
    pool.ParallelFor(3, [&](int64_t) {
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();  // only ends if three threads take part
    });
    if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(ThreadPoolTest, NestedLoopsRunInsideTheTask) {
  ThreadPool pool(3);
  std::atomic<int> inner{0}, moved{0};
  pool.ParallelFor(20, [&](int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.ParallelFor(10, [&](int64_t) {
      inner.fetch_add(1);
      if (std::this_thread::get_id() != outer) moved.fetch_add(1);
    });
  });
  EXPECT_EQ(inner.load(), 200);
  EXPECT_EQ(moved.load(), 0);
}

TEST(ThreadPoolTest, ManyCallersShareOnePool) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        pool.ParallelFor(9, [&](int64_t i) { sum.fetch_add(i); });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 200 * 36);
}

TEST(GrowingMemoryTest, KeepsWhatItHoldsAndIsZeroBeyond) {
  GrowingMemory memory;
  EXPECT_EQ(memory.data(), nullptr);
  size_t used = 0;
  for (const size_t size :
       {size_t{1}, size_t{5000}, size_t{1} << 20, size_t{9} << 20, size_t{40} << 20}) {
    memory.Grow(size);
    ASSERT_GE(memory.capacity(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLine, 0u);
    for (size_t i = 0; i < used; i += 997)
      ASSERT_EQ(memory.data()[i], static_cast<char>(1 + i % 100)) << i;
    for (size_t i = used; i < size; ++i) ASSERT_EQ(memory.data()[i], 0) << i;
    used = size;
    for (size_t i = 0; i < used; i += 997) memory.data()[i] = static_cast<char>(1 + i % 100);
  }
  const char* const data = memory.data();
  memory.Grow(7);
  EXPECT_EQ(memory.data(), data) << "it never shrinks";
}

TEST(OutOfMemoryDeathTest, SaysHowMuchWasWantedAndEndsWithTheCodeOfWhatIsTemporary) {
  EXPECT_EXIT(OutOfMemory(123456), testing::ExitedWithCode(kExitTemporary),
              "error: out of memory: 123456 bytes wanted; [0-9]+ MB in use");
  EXPECT_EXIT(GrowingMemory().Grow(size_t{1} << 62), testing::ExitedWithCode(kExitTemporary),
              "bytes wanted");
}

std::atomic<const char*> handler_frame = nullptr;

TEST(AlternateStackTest, HandlersThatAskForItRunBesideTheThreadsOwnStack) {
  std::thread([] {
    EnsureAlternateStack();
    EnsureAlternateStack();
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) {
      const char here = 0;
      handler_frame = &here;
    };
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, &before);
    raise(SIGUSR2);
    sigaction(SIGUSR2, &before, nullptr);
    stack_t stack{};
    ASSERT_EQ(sigaltstack(nullptr, &stack), 0);
    const char* begin = static_cast<const char*>(stack.ss_sp);
    EXPECT_GE(handler_frame, begin);
    EXPECT_LT(handler_frame, begin + stack.ss_size);
  }).join();
}

TEST(MachineMemoryTest, AContainersLimitCountsWhereThereIsOne) {
  const support::TempFolder cgroup;
  const size_t machine = MachineMemory(cgroup.path());
  EXPECT_GT(machine, size_t{1} << 20);
  cgroup.Write("memory.max", "max\n");
  EXPECT_EQ(MachineMemory(cgroup.path()), machine);
  cgroup.Write("memory.max", "1048576\n");
  EXPECT_EQ(MachineMemory(cgroup.path()), size_t{1} << 20);
  cgroup.Write("memory.max", "9223372036854771712\n");  // more than the machine has
  EXPECT_EQ(MachineMemory(cgroup.path()), machine);
}

}  // namespace
}  // namespace tandem
