// Makes the groups of the host.
#include <cstdlib>

#include "kernels/base/status_macros.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/comm/net/tcp_group.h"
#include "trainer/comm/net/trainers_group.h"

namespace tandem::comm {

void* AllocateForGroups(size_t num_bytes) { return std::malloc(num_bytes); }
void FreeForGroups(void* memory) { std::free(memory); }
bool AllocateGivesHostMemory() { return true; }

std::vector<Kind> TestedKinds() {
  return {Kind::THREAD, Kind::SHARED_MEMORY, Kind::TCP, Kind::HOSTS};
}

std::vector<std::unique_ptr<ProcessGroup>> MakeGroups(Kind kind, int size, rpc::Store& store,
                                                      absl::Duration timeout) {
  if (kind == Kind::THREAD) return ThreadGroup::Create(size, "world", timeout);
  const std::string token = NewToken();
  if (kind == Kind::HOSTS) {
    std::vector<std::string> hosts;
    for (int r = 0; r < size; ++r) hosts.push_back(HostOf(r, size));
    return MakeOnThreads(size, [&](int rank) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
      ASSIGN_OR_RETURN(TrainersGroup made, MakeTrainersGroup({.store = &store,
                                                              .token = token,
                                                              .name = "world",
                                                              .rank = rank,
                                                              .timeout = timeout,
                                                              .hosts = hosts,
                                                              .listen = "127.0.0.1:0"},
                                                             Soon()));
      return std::move(made.group);
    });
  }
  if (kind == Kind::TCP) {
    return MakeOnThreads(size, [&](int rank) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
      ASSIGN_OR_RETURN(std::shared_ptr<Endpoint> endpoint,
                       Endpoint::Open("127.0.0.1:0", /*advertise=*/"", token));
      return TcpGroup::Create({.store = &store,
                               .endpoint = endpoint,
                               .name = "world",
                               .rank = rank,
                               .size = size,
                               .timeout = timeout},
                              /*name=*/"", Soon());
    });
  }
  auto groups = MakeOnThreads(size, [&](int rank) {
    return CpuGroup::Create({&store, token, "world", rank, size, timeout}, Soon());
  });
  EXPECT_TRUE(SharedMemoryNames().empty())
      << SharedMemoryNames().front() << " was left in /dev/shm";
  return groups;
}

void RunRanks(Kind kind, int size, const RankBody& body, absl::Duration timeout) {
  rpc::MemoryStore store;
  RunOnThreads(MakeGroups(kind, size, store, timeout), body);
}

}  // namespace tandem::comm
