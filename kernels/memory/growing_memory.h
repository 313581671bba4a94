// Zeroed memory that grows without a copy: the system moves its pages to another address when
// needed. From a few megabytes on the memory lies in huge pages, if the system gives them on
// request. Untouched memory takes no space.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>

namespace tandem {

class GrowingMemory {
 public:
  GrowingMemory() = default;
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  // Aligned to a huge page once large enough for one, otherwise to a page. Null before the first
  // Grow.
  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // Makes at least `num_bytes` usable. New bytes are zero; data() may change. Ends the process
  // (OutOfMemory) if the system gives no memory.
  void Grow(size_t num_bytes);

 private:
  char* data_ = nullptr;
  size_t capacity_ = 0;  // a multiple of the page size
};

}  // namespace tandem
