// Working memory of the calling thread, reused from call to call. It grows to the largest request
// and never shrinks, so the steady state allocates nothing. Two requests that are live at once need
// different slots. Memory is 64-byte aligned and uninitialised.
// Thread rule: a slot belongs to its thread. Tasks of a ParallelFor may use their caller's memory,
// but never take the same slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/base/out_of_memory.h"
#include "kernels/memory/large_memory.h"

namespace tandem::kernels {

// CALLER*: taken before a ParallelFor and shared with its tasks. TASK_*: taken inside one task.
enum class ScratchSlot { CALLER, CALLER_B, TASK_A, TASK_B, TASK_C, LIBRARY };

class ScratchMemory {
 public:
  ScratchMemory() = default;
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  ~ScratchMemory() { std::free(data_); }

  void* Reserve(size_t num_bytes) {
    if (num_bytes > capacity_) {
      std::free(data_);
      capacity_ = num_bytes + num_bytes / 4;
      data_ = AllocateArray(capacity_);
      if (data_ == nullptr) OutOfMemory(capacity_);
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t capacity_ = 0;
};

// Memory for `count` elements, valid until this thread asks for the same slot again.
template <class T>
T* Scratch(ScratchSlot slot, int64_t count) {
  thread_local ScratchMemory slots[6];
  return static_cast<T*>(
      slots[static_cast<int>(slot)].Reserve(static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace tandem::kernels
