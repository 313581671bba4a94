// Zeroed memory that grows without being copied: the system moves its pages to another address when it must. Beyond a few megabytes
// it lies in huge pages where the system gives them to those who ask. What was never touched takes no memory.
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

  // Starts a huge page, from the size on at which there are any; else a page. Null before the first Grow.
  char* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // Makes at least `num_bytes` usable: those that are new are zero, data() may be another address. CHECKs that the system gives them.
  void Grow(size_t num_bytes);

 private:
  char* data_ = nullptr;
  size_t capacity_ = 0;  // a multiple of the page
};

}  // namespace tandem
