#include "rpc/shared/arena.h"

#include <algorithm>
#include <optional>

namespace tandem::rpc {

std::shared_ptr<Buffer> SharedArena::Wrap(const Extent& extent, size_t num_bytes) {
  return Buffer::Adopt(base_ + extent.offset, num_bytes, [self = shared_from_this(), extent] {
    absl::MutexLock lock(&self->mutex_);
    self->extents_.Give(extent);
  });
}

std::shared_ptr<Buffer> SharedArena::Allocate(size_t num_bytes) {
  std::optional<Extent> extent;
  {
    absl::MutexLock lock(&mutex_);
    if (num_bytes == 0 || num_bytes > num_bytes_ ||
        extents_.taken_bytes() + num_bytes > num_bytes_ / 2)
      return nullptr;
    extent = extents_.Take(num_bytes);
  }
  return extent.has_value() ? Wrap(*extent, num_bytes) : nullptr;
}

std::shared_ptr<Buffer> SharedArena::TakeUpTo(size_t num_bytes) {
  std::optional<Extent> extent;
  {
    absl::MutexLock lock(&mutex_);
    extent = extents_.TakeUpTo(num_bytes);
  }
  return extent.has_value() ? Wrap(*extent, std::min(num_bytes, extent->num_bytes)) : nullptr;
}

}  // namespace tandem::rpc
