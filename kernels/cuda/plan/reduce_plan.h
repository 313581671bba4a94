// The split of sums among threads, by shape alone. Plain arithmetic, tested without a device.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::kernels::cuda {

inline constexpr int kReduceThreads = 256;
// With more parts, blocks take several in turn.
inline constexpr int64_t kMostReduceBlocks = 1 << 20;

// Threads side by side along a row of `packs` packs: a power of two, at most a warp.
constexpr int ColumnThreads(int64_t packs) {
  int threads = 1;
  while (threads < packs && threads < 32) threads *= 2;
  return threads;
}

// Threads that share a row's sum: a part of a warp, or the whole block for a long row.
constexpr int RowThreads(int64_t packs) {
  return packs > 512 ? kReduceThreads : ColumnThreads(packs);
}

// Rows that one block sums. The first pass has many blocks; later passes, over the first pass's
// sums, have few.
constexpr int64_t ColumnSumRows(bool first_pass) { return first_pass ? 64 : 512; }
constexpr int64_t ColumnSumBlocks(int64_t rows, bool first_pass) {
  return std::max<int64_t>(1, (rows + ColumnSumRows(first_pass) - 1) / ColumnSumRows(first_pass));
}

}  // namespace tandem::kernels::cuda
