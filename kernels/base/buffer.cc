#include "kernels/base/buffer.h"

#include <cstdlib>
#include <utility>

#include "kernels/base/check.h"

namespace tandem {

std::shared_ptr<Buffer> Buffer::Allocate(size_t num_bytes, Device device) {
  TANDEM_CHECK(device.kind == DeviceKind::CPU);
  const size_t rounded = (num_bytes + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
  TANDEM_CHECK(data != nullptr) << "no memory for a buffer of " << num_bytes << " bytes";
  return std::shared_ptr<Buffer>(new Buffer(data, num_bytes, [data] { std::free(data); }));
}

std::shared_ptr<Buffer> Buffer::Adopt(void* data, size_t num_bytes, std::function<void()> release) {
  return std::shared_ptr<Buffer>(new Buffer(data, num_bytes, std::move(release)));
}

Buffer::~Buffer() {
  if (release_) release_();
}

}  // namespace tandem
