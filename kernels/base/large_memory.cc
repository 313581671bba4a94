#include "kernels/base/large_memory.h"

#include <sys/mman.h>

#include <cstdlib>

namespace tandem {

namespace {

size_t RoundUpTo(size_t unit, size_t num_bytes) { return (num_bytes + unit - 1) / unit * unit; }

// Whole huge pages from half of one on, else whole cache lines.
size_t WholePages(size_t num_bytes) { return RoundUpTo(num_bytes >= kHugePage / 2 ? kHugePage : kCacheLine, num_bytes); }

}  // namespace

void* AllocateArray(size_t num_bytes) {
  const size_t size = WholePages(num_bytes);
  if (size < kHugePage) return std::aligned_alloc(kCacheLine, size);
  void* data = std::aligned_alloc(kHugePage, size);
  if (data != nullptr) madvise(data, size, MADV_HUGEPAGE);  // a wish: where it is not granted, small pages do
  return data;
}

}  // namespace tandem
