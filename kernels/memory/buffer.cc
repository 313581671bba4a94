#include "kernels/memory/buffer.h"

#include <utility>

namespace tandem {

std::shared_ptr<Buffer> Buffer::Allocate(size_t num_bytes, Device device) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->home_ = BlockCache::Of(device);
  buffer->block_ = buffer->home_->Take(num_bytes);
  buffer->num_bytes_ = num_bytes;
  buffer->device_ = device;
  return buffer;
}

std::shared_ptr<Buffer> Buffer::Adopt(void* data, size_t num_bytes, std::function<void()> release,
                                      Device device) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->block_.data = data;
  buffer->num_bytes_ = num_bytes;
  buffer->device_ = device;
  buffer->release_ = std::move(release);
  return buffer;
}

Buffer::~Buffer() {
  if (home_) home_->Return(block_);
  if (release_) release_();
}

}  // namespace tandem
