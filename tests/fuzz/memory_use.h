// Measures how much memory a call takes: the bytes of the heap in use by all threads, above the
// bytes before the call.
// The peak counts, not the sum over time: the peak is the cost of a hostile message to a server.
// Retained memory keeps counting.
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

// The bytes that an input of `num_bytes` may take: `factor` for each byte, and a megabyte.
inline constexpr size_t kRowsFactor = 8,
                        kOtherFactor = 64;  // calls that carry rows to a server, and all others
inline size_t AllowedBytes(size_t num_bytes, size_t factor) {
  return factor * num_bytes + (size_t{1} << 20);
}

// Runs `call`, which may take AllowedBytes and `extra_bytes` for data that it must keep or answer.
template <class Call>
auto Within(size_t num_bytes, size_t factor, const Call& call, size_t extra_bytes = 0) {
  const MemoryUse use;
  auto result = call();
  TANDEM_CHECK_LE(use.peak_bytes(), AllowedBytes(num_bytes, factor) + extra_bytes)
      << "an input of " << num_bytes << " bytes";
  return result;
}

}  // namespace tandem::fuzz
