#include "kernels/memory/large_memory.h"

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

namespace tandem {

namespace {

// Under a sanitizer an array ends where the request does, so that the sanitizer finds uses past the
// end.
#ifdef TANDEM_SANITIZED
constexpr bool kHugePages = false;
#else
constexpr bool kHugePages = true;
#endif

// Rounds up to whole huge pages from half a huge page on, else to whole cache lines, at least one.
size_t WholePages(size_t num_bytes) {
  const size_t unit = kHugePages && num_bytes >= kHugePage / 2 ? kHugePage : kCacheLine;
  return std::max<size_t>(1, num_bytes / unit + (num_bytes % unit != 0)) * unit;
}

}  // namespace

void* AllocateArray(size_t num_bytes) {
  const size_t size = WholePages(num_bytes);
  if (!kHugePages || size < kHugePage) return std::aligned_alloc(kCacheLine, size);
  void* data = std::aligned_alloc(kHugePage, size);
  if (data != nullptr) madvise(data, size, MADV_HUGEPAGE);  // only a request: small pages also work
  return data;
}

}  // namespace tandem
