// Memory for arrays. Large ones lie in huge pages where the system gives them to those who ask (Linux's transparent_hugepage
// "madvise"): a matrix product walks over more small pages than a processor keeps the places of.
// Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

inline constexpr size_t kCacheLine = 64, kHugePage = size_t{2} << 20;

// At least num_bytes, uninitialised, on a cache line of its own; null if there is no memory. From half a huge page on it takes whole
// ones. Given back by std::free.
void* AllocateArray(size_t num_bytes);

}  // namespace tandem
