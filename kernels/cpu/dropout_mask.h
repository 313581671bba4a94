// The random words behind dropout masks, a run of consecutive elements at a time: loops over Philox blocks that vectorise.
// Element e of the stream (key, step) has word PhiloxBlock(FoldKey(key), step, e / 4)[e % 4] wherever the run starts.
// Inline bodies for Vectorised().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/base/random.h"

namespace tandem::kernels {

// An element is dropped iff its word, shifted right by 8, is below this: the same as UnitFloat(word) < probability.
inline int32_t DropThreshold(double probability) {
  return static_cast<int32_t>(std::ceil(probability * 16777216.0 - 0.5));
}

// 0 or value * scale; a select and no branch, which would be mispredicted.
template <class T>
inline T DropOrScale(uint32_t word, int32_t threshold, T value, T scale) {
  const T scaled = value * scale;
  return static_cast<int32_t>(word >> 8) < threshold ? T(0) : scaled;
}

inline constexpr int64_t kMaskBlocks = 64, kMaskLanes = 16;
inline constexpr int64_t kMaskRun = 4 * kMaskBlocks;

// words[4 b + w] = word w of block first_block + b, for b in [0, num_blocks) and on to a multiple of kMaskLanes: a whole vector
// costs less than a scalar loop over its first few lanes.
inline void RandomWords(uint64_t folded_key, uint64_t step, uint64_t first_block, int64_t num_blocks, uint32_t* words) {
  for (int64_t b = 0; b < num_blocks; b += kMaskLanes) {
    for (int64_t l = b; l < b + kMaskLanes; ++l) {
      const Philox4 block = PhiloxBlock(folded_key, step, first_block + static_cast<uint64_t>(l));
      words[4 * l] = block[0];
      words[4 * l + 1] = block[1];
      words[4 * l + 2] = block[2];
      words[4 * l + 3] = block[3];
    }
  }
}

// Calls apply(i, word) for i in [0, count), element first + i of the stream.
template <class Apply>
inline void ForEachRandomWord(uint64_t folded_key, uint64_t step, uint64_t first, int64_t count, const Apply& apply) {
  alignas(64) uint32_t words[kMaskRun];
  uint64_t block = first / 4;
  int64_t skip = static_cast<int64_t>(first % 4);
  for (int64_t done = 0; done < count; skip = 0) {
    const int64_t num_blocks = std::min(kMaskBlocks, (skip + count - done + 3) / 4);
    RandomWords(folded_key, step, block, num_blocks, words);
    const int64_t run = std::min(count - done, 4 * num_blocks - skip);
#pragma GCC ivdep
    for (int64_t i = 0; i < run; ++i) apply(done + i, words[skip + i]);
    done += run;
    block += static_cast<uint64_t>(num_blocks);
  }
}

}  // namespace tandem::kernels
