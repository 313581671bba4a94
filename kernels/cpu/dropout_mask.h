// The random words behind dropout masks: runs of consecutive elements, and columns of sixteen runs side by side.
// Element e of the stream (key, step) has word PhiloxBlock(FoldKey(key), step, e / 4)[e % 4] wherever the run starts.
// Inline bodies for Vectorised(); kSet is the argument of its loop.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/philox_lanes.h"

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

inline constexpr int64_t kMaskBlocks = 64;
inline constexpr int64_t kMaskRun = 4 * kMaskBlocks;

// words[4 b + w] = word w of block first_block + b, for b in [0, num_blocks) and on to a multiple of kLanes: a whole vector
// costs less than a scalar loop over its first few lanes.
template <InstructionSet kSet>
inline void RandomWords(uint64_t folded_key, uint64_t step, uint64_t first_block, int64_t num_blocks, uint32_t* words) {
  for (int64_t b = 0; b < num_blocks; b += kLanes) {
    uint64_t blocks[kLanes];
    uint32_t w0[kLanes], w1[kLanes], w2[kLanes], w3[kLanes];
    for (int l = 0; l < kLanes; ++l) blocks[l] = first_block + static_cast<uint64_t>(b + l);
    PhiloxLanes<kSet>(folded_key, step, blocks, w0, w1, w2, w3);
    for (int l = 0; l < kLanes; ++l) {
      words[4 * (b + l)] = w0[l];
      words[4 * (b + l) + 1] = w1[l];
      words[4 * (b + l) + 2] = w2[l];
      words[4 * (b + l) + 3] = w3[l];
    }
  }
}

// Calls apply(i, word) for i in [0, count), element first + i of the stream.
template <InstructionSet kSet = InstructionSet::BASELINE, class Apply>
inline void ForEachRandomWord(uint64_t folded_key, uint64_t step, uint64_t first, int64_t count, const Apply& apply) {
  alignas(64) uint32_t words[kMaskRun];
  uint64_t block = first / 4;
  int64_t skip = static_cast<int64_t>(first % 4);
  for (int64_t done = 0; done < count; skip = 0) {
    const int64_t num_blocks = std::min(kMaskBlocks, (skip + count - done + 3) / 4);
    RandomWords<kSet>(folded_key, step, block, num_blocks, words);
    const int64_t run = std::min(count - done, 4 * num_blocks - skip);
#pragma GCC ivdep
    for (int64_t i = 0; i < run; ++i) apply(done + i, words[skip + i]);
    done += run;
    block += static_cast<uint64_t>(num_blocks);
  }
}

// Calls apply(j, words) for j in [0, count): words[l] is the word of element first[l] + j, l in [0, kLanes).
template <InstructionSet kSet, class Apply>
inline void ForEachWordColumn(uint64_t folded_key, uint64_t step, const uint64_t* first, int64_t count, const Apply& apply) {
  uint64_t blocks[kLanes];
  uint32_t phase[kLanes], a0[kLanes], a1[kLanes], a2[kLanes], a3[kLanes], b0[kLanes], b1[kLanes], b2[kLanes], b3[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    blocks[l] = first[l] / 4;
    phase[l] = static_cast<uint32_t>(first[l] % 4);
  }
  PhiloxLanes<kSet>(folded_key, step, blocks, a0, a1, a2, a3);
  // Lane l takes its words from place phase[l] on of those of two blocks.
  const auto place = [&](int64_t j, const uint32_t* p0, const uint32_t* p1, const uint32_t* p2, const uint32_t* p3) {
    if (j >= count) return;
    uint32_t words[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t lower = phase[l] == 0 ? p0[l] : p1[l], upper = phase[l] == 2 ? p2[l] : p3[l];
      words[l] = phase[l] < 2 ? lower : upper;
    }
    apply(j, words);
  };
  for (int64_t j = 0; j < count; j += 4) {
    for (int l = 0; l < kLanes; ++l) ++blocks[l];
    PhiloxLanes<kSet>(folded_key, step, blocks, b0, b1, b2, b3);
    place(j, a0, a1, a2, a3);
    place(j + 1, a1, a2, a3, b0);
    place(j + 2, a2, a3, b0, b1);
    place(j + 3, a3, b0, b1, b2);
    for (int l = 0; l < kLanes; ++l) a0[l] = b0[l], a1[l] = b1[l], a2[l] = b2[l], a3[l] = b3[l];
  }
}

}  // namespace tandem::kernels
