// How much memory a call takes: bytes of the heap that the whole process, all its threads, has in use at a moment, above what it had before the
// call. The most at any moment counts, not the sum over time: that is what a hostile message can cost a server. What is retained counts on.
// Linking this file replaces malloc (without a sanitizer) or hooks it (with one).
// Thread rule: one MemoryUse at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"

namespace tandem::fuzz {

class MemoryUse {
 public:
  MemoryUse();
  size_t peak_bytes() const;

 private:
  const size_t bytes_before_;
};

// What an input of `num_bytes` may take: `factor` bytes for each, and a megabyte.
inline constexpr size_t kRowsFactor = 8, kOtherFactor = 64;  // calls that carry rows to a server, and all others
inline size_t AllowedBytes(size_t num_bytes, size_t factor) { return factor * num_bytes + (size_t{1} << 20); }

// Runs `call`, which may take so much, and `extra_bytes` for what it was asked to keep or to answer.
template <class Call>
auto Within(size_t num_bytes, size_t factor, const Call& call, size_t extra_bytes = 0) {
  const MemoryUse use;
  auto result = call();
  TANDEM_CHECK_LE(use.peak_bytes(), AllowedBytes(num_bytes, factor) + extra_bytes) << "an input of " << num_bytes << " bytes";
  return result;
}

}  // namespace tandem::fuzz
