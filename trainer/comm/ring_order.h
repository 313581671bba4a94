// The fixed orders of summation, as pure functions of (count, size). Every process group on the
// host reduces in these orders. So the thread group and the shared-memory group give the same bits,
// on every rank and in every run.
// ANY cuts an array into blocks of at most kChunkElements * size elements, and a block into `size`
// chunks. Chunk c is summed in the order of a ring reduce-scatter: rank c+1, then c+2, ..., and
// rank c last. Rank c then owns the sum. ReduceScatter under ANY takes part c as chunk c, whatever
// its length.
// TREE sums each element over the ranks by one balanced binary tree, however the array is cut.
// Thread rule: pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::comm {

// Large enough to hide a wait. Small enough that a chunk of f32 (256 KB) stays in a core's cache
// until the chunk is passed on.
inline constexpr int64_t kChunkElements = 65536;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  constexpr int64_t size() const { return end - begin; }
};

constexpr int64_t NumBlocks(int64_t count, int size) {
  return (count + kChunkElements * size - 1) / (kChunkElements * size);
}

constexpr Range BlockRange(int64_t count, int size, int64_t block) {
  const int64_t elements = kChunkElements * size;
  return {block * elements, std::min(count, (block + 1) * elements)};
}

// Chunk `chunk` of a block. Chunks start at multiples of 16 elements from the block's start, so the
// last chunks may be empty.
constexpr Range ChunkRange(Range block, int size, int chunk) {
  const int64_t share = ((block.size() + size - 1) / size + 15) / 16 * 16;
  return {std::min(block.end, block.begin + share * chunk),
          std::min(block.end, block.begin + share * (chunk + 1))};
}

// The i-th rank (0 <= i < size) that is added into a chunk.
constexpr int RingRank(int chunk, int i, int size) { return (chunk + 1 + i) % size; }

// The rank at which the tree over ranks [begin, end) splits into two subtrees.
// REQUIRES: end - begin >= 2.
constexpr int TreeSplit(int begin, int end) { return begin + (end - begin + 1) / 2; }

}  // namespace tandem::comm
