// The memory blocks that one thread's buffers gave back, kept for its next ones: a training step asks for the same sizes again and
// again, and the system takes longer to map a large block and to fault its pages in than a kernel takes to fill it. A block goes
// home to the cache that it came from, on whatever thread its buffer ends, so a loader may fill what the step frees.
// A block of a CUDA device may be handed out again while kernels that read it are still to run: the next user's run after them, for a
// thread computes on one stream. Whoever uses a block on another stream lets that wait for the thread's stream first, and keeps the
// buffer until the thread's stream waits for that use.
// Idle blocks hold at most twice the bytes that were ever in use at once; the one that has rested longest goes first. A graph's cache
// (graph.h) keeps every block while it lives: its kernels come back to their addresses.
// Thread rule: any thread; a buffer shares the ownership of its cache, which may outlive its thread.
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

class BlockCache {
 public:
  struct Block {
    void* data = nullptr;
    int size_class = 0;
  };

  enum class Keep { SOME, ALL };  // of the idle blocks

  explicit BlockCache(Device device = {}, Keep keep = Keep::SOME) : device_(device), keep_(keep) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  // Every block is idle by now: the others' buffers own the cache.
  ~BlockCache();

  // The calling thread's, of the device.
  static const std::shared_ptr<BlockCache>& Of(Device device) { return OfThread(device); }
  // Makes `cache` the calling thread's and returns the one that was.
  static std::shared_ptr<BlockCache> Exchange(Device device, std::shared_ptr<BlockCache> cache);

  // Uninitialised memory of at least `num_bytes`, 64-byte aligned. CHECKs that the system gives it, once all idle blocks went back. A
  // device that has no more gives Nowhere(), which nobody reads: the stream fails with TakeShortage, and drops what is submitted then.
  Block Take(size_t num_bytes);
  void Return(Block block);
  // Gives idle blocks back to the system.
  void FreeIdle();
  // Of all blocks, idle or in use.
  size_t num_bytes() const;
  // Why a Take since the last call got Nowhere(), if one did: ResourceExhausted.
  absl::Status TakeShortage();
  // An address at which no memory is. Not null, which stands for arrays that are not wanted.
  static void* Nowhere() { return reinterpret_cast<void*>(uintptr_t{4096}); }

  // Blocks that all caches of the process have taken from the system so far.
  static uint64_t num_system_blocks();

 private:
  struct Idle {
    void* data;
    uint64_t since;  // the count of returns
  };
  // Four sizes per doubling: beyond 256 bytes at most a fifth of a new block lies waste, and from 1 MiB on what fills its huge pages.
  // Take hands out an idle block of up to twice the size.
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
  std::array<std::vector<Idle>, kNumClasses> idle_ ABSL_GUARDED_BY(mutex_);  // of a class: stacks, the oldest at the bottom
  uint64_t num_returns_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0, used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t most_used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> short_{false};
  absl::Status shortage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
