// One sender's part of a shared segment: the memory of its messages. Only this process knows which
// parts are taken, so the peer cannot corrupt the allocation. A buffer filled here is sent without
// a copy.
// Thread rule: any thread. Buffers may outlive everything else; they keep the segment mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/memory/buffer.h"
#include "rpc/shared/extents.h"
#include "rpc/shared/memory.h"

namespace tandem::rpc {

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  // Manages the bytes [offset, offset + num_bytes) of the segment.
  // REQUIRES: num_bytes is a multiple of Extents::kUnit.
  SharedArena(std::shared_ptr<SharedMemory> memory, size_t offset, size_t num_bytes)
      : memory_(std::move(memory)),
        base_(memory_->data() + offset),
        num_bytes_(num_bytes),
        extents_(num_bytes) {}

  // Memory for writing a message in place. Null if half of the arena is taken: messages that wait
  // in the queue must leave room for copies of the messages before them.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // Memory for copying a message: at most `num_bytes`, less if no free piece is so large. Null if
  // there is none.
  std::shared_ptr<Buffer> TakeUpTo(size_t num_bytes);

  bool Holds(const void* data, size_t num_bytes) const {
    const auto first = reinterpret_cast<uintptr_t>(base_),
               begin = reinterpret_cast<uintptr_t>(data);
    return begin >= first && begin - first <= num_bytes_ &&
           num_bytes <= num_bytes_ - (begin - first);
  }
  size_t OffsetOf(const void* data) const {
    return static_cast<size_t>(static_cast<const char*>(data) - base_);
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  std::shared_ptr<Buffer> Wrap(const Extent& extent, size_t num_bytes);

  const std::shared_ptr<SharedMemory> memory_;
  char* const base_;
  const size_t num_bytes_;
  absl::Mutex mutex_;
  Extents extents_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::rpc
