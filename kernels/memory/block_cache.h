// Caches the memory blocks that a thread's buffers return. A training step asks for the same sizes
// again and again. Mapping a large block and faulting its pages in takes longer than a kernel needs
// to fill it.
// A block returns to the cache that it came from, whatever thread destroys its buffer. So a loader
// thread may fill blocks that the step frees.
// Thread rule: any thread. A buffer shares ownership of its cache, which may outlive its thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/device.h"

namespace tandem {

// CUDA: a block may be reused while submitted kernels still read it, because a thread computes on
// one stream, in order. To use a block on another stream, first let that stream wait for the
// thread's stream. Keep the buffer until the thread's stream waits for that use.
// Idle blocks hold at most twice the peak bytes in use; the longest idle block is freed first. The
// cache of a graph (graph.h) keeps every block, because its kernels reuse their addresses.
class BlockCache {
 public:
  struct Block {
    void* data = nullptr;
    int size_class = 0;
  };

  enum class Keep { SOME, ALL };  // which idle blocks to keep

  explicit BlockCache(Device device = {}, Keep keep = Keep::SOME) : device_(device), keep_(keep) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  // Every block is idle by now, because buffers in use own the cache.
  ~BlockCache();

  // The calling thread's cache for the device.
  static const std::shared_ptr<BlockCache>& Of(Device device) { return OfThread(device); }
  // Makes `cache` the calling thread's cache and returns the previous one.
  static std::shared_ptr<BlockCache> Exchange(Device device, std::shared_ptr<BlockCache> cache);

  // Uninitialised memory of at least `num_bytes`, 64-byte aligned. Frees all idle blocks
  // (Keep::SOME) if memory is short. A CPU that then still has no memory ends the process
  // (OutOfMemory). A device without memory gives Nowhere(), which nobody reads: the stream fails
  // with TakeShortage and drops what is submitted then.
  Block Take(size_t num_bytes);
  void Return(Block block);
  // Gives idle blocks back to the system.
  void FreeIdle();
  // The bytes of all blocks, idle or in use.
  size_t num_bytes() const;
  size_t used_bytes() const;  // of those in use
  // ResourceExhausted if a Take since the last call returned Nowhere().
  absl::Status TakeShortage();
  // An address without memory behind it. Not null, because null means an array that is not wanted.
  static void* Nowhere() { return reinterpret_cast<void*>(uintptr_t{4096}); }

  // The number of blocks that all caches of the process have taken from the system.
  static uint64_t num_system_blocks();

 private:
  struct Idle {
    void* data;
    uint64_t since;  // the value of num_returns_
  };
  // Four sizes per doubling. Beyond 256 bytes at most a fifth of a new block is unused. Blocks from
  // 1 MiB on fill whole huge pages. Take hands out an idle block of up to twice the size.
  static constexpr int kNumClasses = 4 * 42;
  static int ClassOf(size_t num_bytes);
  static size_t BytesOf(int size_class);
  static std::shared_ptr<BlockCache>& OfThread(Device device);

  bool KeepsIdle() const;
  void* AllocateBlock(size_t num_bytes);
  void FreeBlock(void* data);
  void NoteShortage(size_t num_bytes);
  void EvictOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Device device_;
  const Keep keep_;
  mutable absl::Mutex mutex_;
  // One stack per class, oldest at the bottom.
  std::array<std::vector<Idle>, kNumClasses> idle_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_returns_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0, used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t most_used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> short_{false};
  absl::Status shortage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
