#include "tests/fuzz/memory_use.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <malloc.h>

#ifdef TANDEM_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

namespace tandem::fuzz {
namespace {

std::atomic<int64_t> in_use{0}, most{0};

void Add(int64_t num_bytes) {
  const int64_t now = in_use.fetch_add(num_bytes, std::memory_order_relaxed) + num_bytes;
  int64_t known = most.load(std::memory_order_relaxed);
  while (now > known && !most.compare_exchange_weak(known, now, std::memory_order_relaxed)) {
  }
}

#ifdef TANDEM_SANITIZED
void OnMalloc(const volatile void*, size_t num_bytes) { Add(static_cast<int64_t>(num_bytes)); }
void OnFree(const volatile void* memory) {
  if (memory != nullptr) Add(-static_cast<int64_t>(__sanitizer_get_allocated_size(memory)));
}
const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
#else
void* Counted(void* memory) {
  if (memory != nullptr) Add(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}
#endif

}  // namespace

MemoryUse::MemoryUse() : bytes_before_(static_cast<size_t>(in_use.load())) {
  most = static_cast<int64_t>(bytes_before_);
}

size_t MemoryUse::peak_bytes() const { return static_cast<size_t>(most.load()) - bytes_before_; }

}  // namespace tandem::fuzz

#ifndef TANDEM_SANITIZED
// glibc's allocation functions, under the names that make them replaceable.
extern "C" {
void* __libc_malloc(size_t num_bytes);
void* __libc_calloc(size_t count, size_t each);
void* __libc_realloc(void* memory, size_t num_bytes);
void* __libc_memalign(size_t alignment, size_t num_bytes);
void __libc_free(void* memory);

void* malloc(size_t num_bytes) { return tandem::fuzz::Counted(__libc_malloc(num_bytes)); }
void* calloc(size_t count, size_t each) {
  return tandem::fuzz::Counted(__libc_calloc(count, each));
}
void* memalign(size_t alignment, size_t num_bytes) {
  return tandem::fuzz::Counted(__libc_memalign(alignment, num_bytes));
}
void* aligned_alloc(size_t alignment, size_t num_bytes) { return memalign(alignment, num_bytes); }
int posix_memalign(void** memory, size_t alignment, size_t num_bytes) {
  *memory = memalign(alignment, num_bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (memory != nullptr) tandem::fuzz::Add(-static_cast<int64_t>(malloc_usable_size(memory)));
  __libc_free(memory);
}
void* realloc(void* memory, size_t num_bytes) {
  const auto before = static_cast<int64_t>(memory == nullptr ? 0 : malloc_usable_size(memory));
  void* const moved = __libc_realloc(memory, num_bytes);
  if (moved != nullptr || num_bytes == 0) tandem::fuzz::Add(-before);
  return tandem::fuzz::Counted(moved);
}
}
#endif
