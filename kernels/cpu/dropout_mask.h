// The random bits behind dropout masks (DropoutBits of kernels/base/random.h); dropout_bits.h reads runs of consecutive elements,
// this sixteen such runs side by side. Inline bodies for Vectorised(); kSet is the argument of its loop.
#pragma once

#include <cstdint>

#include "kernels/cpu/philox_lanes.h"

namespace tandem::kernels {

// A word carries its element's bits in its upper half; the lower half, whatever it is, does not change the comparison.
constexpr uint32_t DropLimit(uint32_t threshold) { return threshold << 16; }

// 0 or the value; a select and no branch, which would be mispredicted.
template <class T>
inline T DropOrKeep(uint32_t word, uint32_t limit, T value) {
  return word < limit ? T(0) : value;
}

// Elements of room that WordColumns needs for `count` rows.
constexpr int64_t WordColumnsRoom(int64_t count) { return (count + 16) * kLanes; }

// Sixteen runs side by side: rows of kLanes words in `room`, where entry (j, l) is the word of element first[l] + j, j in [0, count).
// Returns the first row.
template <InstructionSet kSet>
inline const uint32_t* WordColumns(const PhiloxKeys& keys, uint64_t step, const uint64_t* first, int64_t count, uint32_t* room) {
  uint64_t blocks[kLanes];
  uint32_t phase[kLanes], differing = 0;
  for (int l = 0; l < kLanes; ++l) {
    blocks[l] = first[l] / 8;
    phase[l] = static_cast<uint32_t>(first[l] % 8);
    differing |= phase[l] ^ phase[0];
  }
  int64_t rows = count + 7;
  for (int64_t j = 0; j < rows; j += 8) {
    uint32_t* row = room + j * kLanes;
    PhiloxLanes<kSet>(keys, step, blocks, row + kLanes, row + 3 * kLanes, row + 5 * kLanes, row + 7 * kLanes);
    for (int w = 0; w < 4; ++w, row += 2 * kLanes) {
      for (int l = 0; l < kLanes; ++l) row[l] = row[kLanes + l] << 16;
    }
    for (int l = 0; l < kLanes; ++l) ++blocks[l];
  }
  // Runs that start elsewhere in their blocks than others move up, by each power of two in which they differ.
  for (uint32_t shift = 4; shift > 0; shift /= 2) {
    if ((differing & shift) == 0) continue;
    rows -= shift;
    for (int64_t j = 0; j < rows; ++j) {
      uint32_t* row = room + j * kLanes;
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t stays = row[l], moves = row[shift * kLanes + static_cast<uint32_t>(l)];
        row[l] = (phase[l] & shift) != 0 ? moves : stays;
      }
    }
  }
  return room + (phase[0] & ~differing) * kLanes;
}

}  // namespace tandem::kernels
