// The random words behind dropout masks; dropout_bits.h reads runs of consecutive elements, this sixteen such runs side by side.
// Element e of the stream (key, step) has word PhiloxBlock(FoldKey(key), step, e / 4)[e % 4] wherever the run starts.
// Inline bodies for Vectorised(); kSet is the argument of its loop.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/philox_lanes.h"

namespace tandem::kernels {

// An element is dropped iff its word, shifted right by 8, is below this: the same as UnitFloat(word) < probability.
inline int32_t DropThreshold(double probability) {
  return static_cast<int32_t>(std::ceil(probability * 16777216.0 - 0.5));
}

// 0 or the value; a select and no branch, which would be mispredicted.
template <class T>
inline T DropOrKeep(uint32_t word, int32_t threshold, T value) {
  return static_cast<int32_t>(word >> 8) < threshold ? T(0) : value;
}

// Elements of room that WordColumns needs for `count` rows.
constexpr int64_t WordColumnsRoom(int64_t count) { return (count + 8) * kLanes; }

// Sixteen runs side by side: rows of kLanes words in `room`, where entry (j, l) is the word of element first[l] + j, j in [0, count).
// Returns the first row.
template <InstructionSet kSet>
inline const uint32_t* WordColumns(const PhiloxKeys& keys, uint64_t step, const uint64_t* first, int64_t count, uint32_t* room) {
  uint64_t blocks[kLanes];
  uint32_t phase[kLanes], differing = 0;
  for (int l = 0; l < kLanes; ++l) {
    blocks[l] = first[l] / 4;
    phase[l] = static_cast<uint32_t>(first[l] % 4);
    differing |= phase[l] ^ phase[0];
  }
  for (int64_t j = 0; j < count + 3; j += 4) {
    uint32_t* row = room + j * kLanes;
    PhiloxLanes<kSet>(keys, step, blocks, row, row + kLanes, row + 2 * kLanes, row + 3 * kLanes);
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
