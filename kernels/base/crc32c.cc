#include "kernels/base/crc32c.h"

#include <algorithm>
#include <isa-l/crc.h>

namespace tandem {

namespace {

// The most bytes per call, because the library counts bytes in an int.
constexpr size_t kMostBytes = size_t{1} << 30;

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  auto* p = static_cast<unsigned char*>(const_cast<void*>(data));  // the library only reads
  uint32_t state = ~crc;
  while (size > 0) {
    const size_t part = std::min(size, kMostBytes);
    state = crc32_iscsi(p, static_cast<int>(part), state);
    p += part;
    size -= part;
  }
  return ~state;
}

}  // namespace tandem
