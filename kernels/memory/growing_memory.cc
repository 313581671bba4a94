#include "kernels/memory/growing_memory.h"

#include <cstdint>
#include <sys/mman.h>

#include "kernels/base/out_of_memory.h"
#include "kernels/memory/large_memory.h"

namespace tandem {

namespace {

constexpr size_t kPage = 4096;
// The capacity from which huge pages pay. Below, whole huge pages would waste too much: a job may
// have many small tables.
constexpr size_t kHugeFrom = 4 * kHugePage;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Reserves address space without memory, aligned to a huge page.
char* Reserve(size_t num_bytes) {
  void* const place = mmap(nullptr, num_bytes + kHugePage, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) OutOfMemory(num_bytes);
  char* const begin = static_cast<char*>(place);
  char* const aligned =
      reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  munmap(aligned + num_bytes, static_cast<size_t>(begin + kHugePage - aligned));
  return aligned;
}

}  // namespace

GrowingMemory::~GrowingMemory() {
  if (data_ != nullptr) munmap(data_, capacity_);
}

void GrowingMemory::Grow(size_t num_bytes) {
  if (num_bytes <= capacity_) return;
  // Grows a quarter ahead, so that a growing array moves only a few times. Untouched pages take no
  // memory.
  const size_t wanted = num_bytes + num_bytes / 4;
  const size_t capacity = RoundUp(wanted, wanted < kHugeFrom ? kPage : kHugePage);
  char* const place = Reserve(capacity);
  void* moved = nullptr;
  if (data_ == nullptr) {
    moved = mmap(place, capacity, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    moved = mremap(data_, capacity_, capacity, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  }
  if (moved != place) OutOfMemory(capacity);
  data_ = place;
  capacity_ = capacity;
  // Only a request: small pages also work.
  if (capacity_ >= kHugeFrom) madvise(data_, capacity_, MADV_HUGEPAGE);
}

}  // namespace tandem
