// A block of memory, 64-byte aligned, freed with its last owner. `Allocate` makes private memory.
// `Adopt` wraps memory that somebody else frees (a shared-memory bucket, a receive slice). Private
// memory returns to the cache of the thread that allocated it (block_cache.h).
// Thread rule: the handle is shared freely; the bytes follow their user's rule.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/base/device.h"
#include "kernels/memory/block_cache.h"

namespace tandem {

class Buffer {
 public:
  // Uninitialised memory. A CPU without memory ends the process (OutOfMemory). On a device without
  // memory the data is BlockCache::Nowhere(), and the stream reports the shortage.
  static std::shared_ptr<Buffer> Allocate(size_t num_bytes, Device device = {});
  // Calls `release` once, when the last owner is gone.
  static std::shared_ptr<Buffer> Adopt(void* data, size_t num_bytes, std::function<void()> release,
                                       Device device = {});

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return block_.data; }
  size_t num_bytes() const { return num_bytes_; }
  bool missing() const { return block_.data == BlockCache::Nowhere(); }
  Device device() const { return device_; }

 private:
  Buffer() = default;

  BlockCache::Block block_;
  size_t num_bytes_ = 0;
  Device device_;
  std::shared_ptr<BlockCache> home_;  // null: adopted memory
  std::function<void()> release_;     // null: allocated memory
};

}  // namespace tandem
