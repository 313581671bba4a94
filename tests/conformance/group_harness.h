// Runs one body per rank over any implementation of ProcessGroup. Ranks are threads here, each with its own group object
// and (for shared memory) its own mapping; process_group_fork_test.cc runs real processes.
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
#include "trainer/comm/cpu_group.h"
#include "trainer/comm/thread_group.h"

namespace tandem::comm {

enum class Kind { THREAD, SHARED_MEMORY };

inline const char* NameOf(Kind kind) { return kind == Kind::THREAD ? "Thread" : "SharedMemory"; }

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

inline std::vector<std::string> SharedMemoryNames(const std::string& token) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (absl::StrContains(name, token)) names.push_back(name);
  }
  return names;
}

using RankBody = std::function<void(ProcessGroup&)>;

inline void RunSharedMemoryRanks(int size, absl::Duration timeout, const RankBody& body) {
  rpc::MemoryStore store;
  const std::string token = NewToken();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = CpuGroup::Create({&store, token, "world", rank, size, timeout}, Soon());
      ASSERT_TRUE(group.ok()) << group.status();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(SharedMemoryNames(token).empty()) << SharedMemoryNames(token).front() << " was left in /dev/shm";
}

inline void RunThreadRanks(int size, absl::Duration timeout, const RankBody& body) {
  auto groups = ThreadGroup::Create(size, "world", timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      body(*groups[rank]);
      groups[rank].reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void RunRanks(Kind kind, int size, const RankBody& body, absl::Duration timeout = absl::Seconds(20)) {
  (kind == Kind::THREAD ? RunThreadRanks : RunSharedMemoryRanks)(size, timeout, body);
}

}  // namespace tandem::comm
