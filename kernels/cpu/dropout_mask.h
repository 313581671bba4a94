// The random words behind dropout masks: runs of consecutive elements, alone or sixteen side by side.
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

template <class T>
inline T DropOrKeep(uint32_t word, int32_t threshold, T value) {
  return static_cast<int32_t>(word >> 8) < threshold ? T(0) : value;
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

// Elements of room that WordColumns needs for `count` rows.
constexpr int64_t WordColumnsRoom(int64_t count) { return (count + 8) * kLanes; }

// Sixteen runs side by side: rows of kLanes words in `room`, where entry (j, l) is the word of element first[l] + j, j in [0, count).
// Returns the first row.
template <InstructionSet kSet>
inline const uint32_t* WordColumns(uint64_t folded_key, uint64_t step, const uint64_t* first, int64_t count, uint32_t* room) {
  uint64_t blocks[kLanes];
  uint32_t phase[kLanes], differing = 0;
  for (int l = 0; l < kLanes; ++l) {
    blocks[l] = first[l] / 4;
    phase[l] = static_cast<uint32_t>(first[l] % 4);
    differing |= phase[l] ^ phase[0];
  }
  for (int64_t j = 0; j < count + 3; j += 4) {
    uint32_t* row = room + j * kLanes;
    PhiloxLanes<kSet>(folded_key, step, blocks, row, row + kLanes, row + 2 * kLanes, row + 3 * kLanes);
    for (int l = 0; l < kLanes; ++l) ++blocks[l];
  }
  if (differing == 0) return room + phase[0] * kLanes;
  for (int64_t j = 0; j < count; ++j) {
    uint32_t* row = room + j * kLanes;
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t w0 = row[l], w1 = row[kLanes + l], w2 = row[2 * kLanes + l], w3 = row[3 * kLanes + l];
      const uint32_t lower = phase[l] == 0 ? w0 : w1, upper = phase[l] == 2 ? w2 : w3;
      row[l] = phase[l] < 2 ? lower : upper;
    }
  }
  return room;
}

}  // namespace tandem::kernels
