// Makes the groups of a CUDA device: over a stand-in for NCCL on the emulated device, over NCCL on
// GPUs.
#include <map>
#include <mutex>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/device/nccl_group.h"
#include "trainer/comm/device/staged_group.h"
#include "trainer/comm/host/thread_group.h"

namespace tandem::comm {

namespace {

#ifdef TANDEM_CUDA_EMULATOR
Device DeviceOf(int) { return {DeviceKind::CUDA, 0}; }
bool CanRun(Kind, int) { return true; }
constexpr bool kEmulated = true;
#else
Device DeviceOf(int rank) { return {DeviceKind::CUDA, rank % QueryCuda().num_devices}; }
// NCCL needs a device for each rank of a process.
bool CanRun(Kind kind, int size) { return QueryCuda().num_devices >= (IsNccl(kind) ? size : 1); }
constexpr bool kEmulated = false;
#endif

// Never frees its arrays: the driver would wait for all ranks' kernels, and some of these wait for
// the rank that frees.
class Arrays {
 public:
  void* Take(size_t num_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& idle = idle_[num_bytes];
    void* memory = nullptr;
    if (idle.empty())
      memory = cuda::AllocatePinnedMemory(num_bytes);
    else
      memory = std::exchange(idle.back(), nullptr), idle.pop_back();
    TANDEM_CHECK(memory != nullptr);
    sizes_[memory] = num_bytes;
    return memory;
  }
  void Return(void* memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_[sizes_.at(memory)].push_back(memory);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> idle_;
  std::map<void*, size_t> sizes_;
};
Arrays& AllArrays() {
  static auto* const arrays = new Arrays;
  return *arrays;
}

}  // namespace

void* AllocateForGroups(size_t num_bytes) { return AllArrays().Take(num_bytes); }
void FreeForGroups(void* memory) { AllArrays().Return(memory); }
bool AllocateGivesHostMemory() { return kEmulated; }

std::vector<Kind> TestedKinds() { return {Kind::STAGED, Kind::NCCL}; }

std::vector<std::unique_ptr<ProcessGroup>> MakeGroups(Kind kind, int size, rpc::Store& store,
                                                      absl::Duration timeout) {
  if (!CanRun(kind, size)) return {};
  if (kind == Kind::NCCL) {
    return MakeOnThreads(size, [&](int rank) {
      return MakeNcclGroup({.store = &store,
                            .name = "world",
                            .rank = rank,
                            .size = size,
                            .device = DeviceOf(rank),
                            .timeout = timeout},
                           Soon());
    });
  }
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (std::unique_ptr<ProcessGroup>& host :
       ThreadGroup::Create(size, "world on the host", timeout)) {
    const Device device = DeviceOf(host->rank());
    groups.push_back(std::make_unique<StagedGroup>(std::move(host), "world", device, timeout));
  }
  return groups;
}

void RunRanks(Kind kind, int size, const RankBody& body, absl::Duration timeout) {
  if (!CanRun(kind, size))
    GTEST_SKIP() << NameOf(kind) << " with " << size << " ranks: " << QueryCuda().num_devices
                 << " GPUs";
  rpc::MemoryStore store;
  RunOnThreads(MakeGroups(kind, size, store, timeout), body);
}

}  // namespace tandem::comm
