// Memory for arrays. Large arrays lie in huge pages if the system gives them on request (Linux's
// transparent_hugepage "madvise"). A matrix product would touch more small pages than the TLB
// holds.
// Thread rule: any thread.
#pragma once

#include <cstddef>

namespace tandem {

inline constexpr size_t kCacheLine = 64, kHugePage = size_t{2} << 20;

// At least num_bytes, uninitialised, aligned to a cache line; null if there is no memory. From half
// a huge page on, takes whole huge pages. Free with std::free.
void* AllocateArray(size_t num_bytes);

}  // namespace tandem
