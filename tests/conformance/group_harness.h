// Runs one body per rank over any implementation of ProcessGroup. Ranks are threads here, each with its own group object
// and (for shared memory) its own mapping; process_group_fork_test.cc runs real processes. A program has the groups of the host
// (host_ranks.cc) or those of a device (device_ranks.cc).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rpc/store/store.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

enum class Kind { THREAD, SHARED_MEMORY, STAGED, NCCL };

inline const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::THREAD: return "Thread";
    case Kind::SHARED_MEMORY: return "SharedMemory";
    case Kind::STAGED: return "Staged";
    case Kind::NCCL: return "Nccl";
  }
  return "?";
}

// What NCCL does not promise: other ranks' descriptions are looked at only after a deadline, sums have its own order, a NaN may be
// lost in a maximum, a Send waits for its Recv.
inline bool IsNccl(Kind kind) { return kind == Kind::NCCL; }
inline constexpr SumOrder kSumOrders[] = {SumOrder::ANY, SumOrder::TREE};

// Memory that the host and the groups of this program can use.
void* AllocateForGroups(size_t num_bytes);
void FreeForGroups(void* memory);
// Whether the host may touch what ProcessGroup::Allocate gives.
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

inline CollectiveArgs Args(ReduceOp op = ReduceOp::SUM, SumOrder order = SumOrder::ANY, uint64_t tag = 0) {
  CollectiveArgs args;
  args.op = op;
  args.order = order;
  args.tag = tag;
  return args;
}

// A token that no other test process and no other call has.
inline std::string NewToken() {
  static std::atomic<int> calls{0};
  return absl::StrCat("test", getpid(), ".", calls.fetch_add(1));
}

// Names of shared-memory files of this project, of whatever process.
inline std::vector<std::string> SharedMemoryNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (absl::StrContains(name, "tandem")) names.push_back(name);
  }
  return names;
}

using RankBody = std::function<void(ProcessGroup&)>;

// Those of this program.
std::vector<Kind> TestedKinds();
// All groups are gone, and nothing of them is left, when it returns. Skips the test where the kind cannot run.
void RunRanks(Kind kind, int size, const RankBody& body, absl::Duration timeout = absl::Seconds(20));

// One group per rank, made by the threads of the ranks.
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
// Groups that stay with the caller, who gives `store` and must not outlive it. Empty where the kind cannot run.
std::vector<std::unique_ptr<ProcessGroup>> MakeGroups(Kind kind, int size, rpc::Store& store, absl::Duration timeout);

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
