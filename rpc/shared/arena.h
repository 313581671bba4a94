// One sender's part of a shared segment: the memory that its messages lie in. Who has which part is known to this process alone,
// so the peer cannot confuse it. A buffer that is filled here is sent without being copied.
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
  // The bytes [offset, offset + num_bytes) of the segment. REQUIRES: num_bytes is a multiple of Extents::kUnit.
  SharedArena(std::shared_ptr<SharedMemory> memory, size_t offset, size_t num_bytes)
      : memory_(std::move(memory)), base_(memory_->data() + offset), num_bytes_(num_bytes), extents_(num_bytes) {}

  // For whoever makes a message; null when half of the arena is taken: messages that cannot be sent yet must leave room for those
  // before them, which have to be copied.
  std::shared_ptr<Buffer> Allocate(size_t num_bytes);
  // For copying a message: at most `num_bytes`, less where no piece is so large; null if there is none.
  std::shared_ptr<Buffer> TakeUpTo(size_t num_bytes);

  bool Holds(const void* data, size_t num_bytes) const {
    const auto first = reinterpret_cast<uintptr_t>(base_), begin = reinterpret_cast<uintptr_t>(data);
    return begin >= first && begin - first <= num_bytes_ && num_bytes <= num_bytes_ - (begin - first);
  }
  size_t OffsetOf(const void* data) const { return static_cast<size_t>(static_cast<const char*>(data) - base_); }
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
