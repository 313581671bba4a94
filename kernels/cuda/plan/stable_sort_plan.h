// The split of a sort by index: digits of eight bits, one pass each, and spans of consecutive
// places, one block of threads each. Plain arithmetic, tested without a device.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tandem::kernels::cuda {

inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
inline constexpr int kSortThreads = kDigits;  // one thread per digit when digits are added up

// Passes that sort values below `num_values`. At least one, because a pass also makes keys and
// places from the index.
constexpr int SortPasses(int64_t num_values) {
  const int bits = num_values > 1 ? std::bit_width(static_cast<uint64_t>(num_values - 1)) : 1;
  return (bits + kDigitBits - 1) / kDigitBits;
}

// Places per block: few enough for many blocks, but at most kMostSpans spans, because every block
// reads all spans' counts.
constexpr int64_t SortSpan(int64_t count) {
  constexpr int64_t kLeastSpan = 2048, kMostSpans = 128;
  const int64_t least = (count + kMostSpans - 1) / kMostSpans;
  return std::max(kLeastSpan, (least + kSortThreads - 1) / kSortThreads * kSortThreads);
}

}  // namespace tandem::kernels::cuda
