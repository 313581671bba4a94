// Runs one body per rank over any implementation of ProcessGroup. Ranks are threads here;
// process_group_fork_test.cc runs processes.
// Each rank has its own group object and, for shared memory, its own mapping.
// A program links the groups of the host (host_ranks.cc) or of a device (device_ranks.cc).
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rpc/store/store.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// HOSTS: ranks on several hosts, two or three on each.
enum class Kind { THREAD, SHARED_MEMORY, TCP, HOSTS, STAGED, NCCL };

inline const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::THREAD:
      return "Thread";
    case Kind::SHARED_MEMORY:
      return "SharedMemory";
    case Kind::TCP:
      return "Tcp";
    case Kind::HOSTS:
      return "Hosts";
    case Kind::STAGED:
      return "Staged";
    case Kind::NCCL:
      return "Nccl";
  }
  return "?";
}

// The host of a rank of HOSTS.
inline std::string HostOf(int rank, int size) {
  return absl::StrCat("h", rank / (size % 3 == 0 ? 3 : 2));
}
// How errors call a rank.
inline std::string NameOfRank(Kind kind, int rank, int size) {
  return kind == Kind::HOSTS ? absl::StrCat("trainer-", rank, " (", HostOf(rank, size), ")")
                             : absl::StrCat("rank ", rank);
}

// True for NCCL, which promises less than the other groups:
// - Ranks compare their descriptions of a call only after a deadline.
// - Sums have NCCL's own order.
// - A maximum may lose a NaN.
// - A Send waits for its Recv.
inline bool IsNccl(Kind kind) { return kind == Kind::NCCL; }
inline constexpr SumOrder kSumOrders[] = {SumOrder::ANY, SumOrder::TREE};

// Allocates memory that the host and the groups of this program can use.
void* AllocateForGroups(size_t num_bytes);
void FreeForGroups(void* memory);
// True if the host may touch the memory from ProcessGroup::Allocate.
bool AllocateGivesHostMemory();

template <class T>
struct GroupAllocator {
  using value_type = T;
  GroupAllocator() = default;
  template <class U>
  explicit GroupAllocator(const GroupAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(AllocateForGroups(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { FreeForGroups(memory); }
  bool operator==(const GroupAllocator&) const = default;
};
template <class T>
using Array = std::vector<T, GroupAllocator<T>>;

inline absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

inline CollectiveArgs Args(ReduceOp op = ReduceOp::SUM, SumOrder order = SumOrder::ANY,
                           uint64_t tag = 0) {
  CollectiveArgs args;
  args.op = op;
  args.order = order;
  args.tag = tag;
  return args;
}

// Returns a token that no other test process and no other call has.
inline std::string NewToken() {
  static std::atomic<int> calls{0};
  return absl::StrCat("test", getpid(), ".", calls.fetch_add(1));
}

// Names of this project's shared-memory files, from any process.
inline std::vector<std::string> SharedMemoryNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (absl::StrContains(name, "tandem")) names.push_back(name);
  }
  return names;
}

using RankBody = std::function<void(ProcessGroup&)>;

// The kinds that this program links.
std::vector<Kind> TestedKinds();
// Runs `body` on every rank. On return all groups are gone and nothing of them is left. Skips the
// test where the kind cannot run.
void RunRanks(Kind kind, int size, const RankBody& body,
              absl::Duration timeout = absl::Seconds(20));

// Makes one group per rank, each on its rank's thread.
inline std::vector<std::unique_ptr<ProcessGroup>> MakeOnThreads(
    int size, const std::function<absl::StatusOr<std::unique_ptr<ProcessGroup>>(int rank)>& make) {
  std::vector<std::unique_ptr<ProcessGroup>> groups(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = make(rank);
      ASSERT_TRUE(group.ok()) << group.status();
      groups[rank] = *std::move(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}
// Makes groups that the caller keeps. REQUIRES: `store` outlives the groups. Returns nothing where
// the kind cannot run.
std::vector<std::unique_ptr<ProcessGroup>> MakeGroups(Kind kind, int size, rpc::Store& store,
                                                      absl::Duration timeout);

inline void RunOnThreads(std::vector<std::unique_ptr<ProcessGroup>> groups, const RankBody& body) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<ProcessGroup>& group : groups) {
    threads.emplace_back([&] {
      body(*group);
      group.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tandem::comm
