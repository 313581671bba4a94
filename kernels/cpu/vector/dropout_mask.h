// Random words for dropout masks (DropoutBits of kernels/base/random.h), for sixteen runs of
// elements side by side. dropout_bits.h serves single runs. Inline bodies for Vectorised(); kSet is
// the argument of its loop.
// Thread rule: one thread per object.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector/philox_lanes.h"

namespace tandem::kernels {

// A word holds its element's random bits in the upper half. The lower half is arbitrary and does
// not change the comparison.
constexpr uint32_t DropLimit(uint32_t threshold) { return threshold << 16; }

// Returns 0 or `value`, by a select: a branch would be mispredicted.
template <class T>
inline T DropOrKeep(uint32_t word, uint32_t limit, T value) {
  return word < limit ? T(0) : value;
}

// The elements of memory that WordColumns needs for `count` rows.
constexpr int64_t WordColumnsRoom(int64_t count) { return (count + 16) * kLanes; }

// Sixteen runs side by side, in rows of kLanes words: entry l of row j is the word of element
// first[l] + j, for j in [0, count). Rows are computed when asked for, a few at a time, to stay in
// L1. All rows are computed at once if the runs begin at different places of their blocks.
template <InstructionSet kSet>
class WordColumns {
 public:
  // `room` has WordColumnsRoom(count) elements.
  WordColumns(const PhiloxKeys& keys, uint64_t step, const uint64_t* first, int64_t count,
              uint32_t* room)
      : keys_(&keys), step_(step), room_(room), phase_(static_cast<int64_t>(first[0] % 8)) {
    uint64_t differing = 0;
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) {
      blocks_[l] = first[l] / 8;
      differing |= first[l] ^ first[0];
    }
    if (differing % 8 != 0) MakeAll(first, count, static_cast<uint32_t>(differing % 8));
  }
  // Wraps rows that are already computed.
  explicit WordColumns(uint32_t* rows) : room_(rows), all_made_(true) {}

  // The end of the rows that Rows can return together with row `begin`.
  int64_t EndOfRows(int64_t begin, int64_t count) const {
    return all_made_
               ? count
               : std::min(count, RoundDown(begin + phase_, kRowsAtOnce) + kRowsAtOnce - phase_);
  }
  // Rows [begin, end). Valid until the next call of Rows.
  const uint32_t* Rows(int64_t begin, int64_t end) const {
    const int64_t skipped = begin + phase_;
    if (all_made_) return room_ + skipped * kLanes;
    PhiloxHalves<kSet>(*keys_, step_, blocks_, skipped / 8, (end + phase_ + 7) / 8 - skipped / 8,
                       room_);
    return room_ + skipped % 8 * kLanes;
  }

 private:
  static constexpr int64_t kRowsAtOnce = 32;
  static int64_t RoundDown(int64_t count, int64_t multiple) { return count / multiple * multiple; }

  // Shifts the runs that start later in their blocks, by each power of two in which the starts
  // differ.
  void MakeAll(const uint64_t* first, int64_t count, uint32_t differing) {
    int64_t rows = count + 7;
    PhiloxHalves<kSet>(*keys_, step_, blocks_, 0, (rows + 7) / 8, room_);
    for (uint32_t shift = 4; shift > 0; shift /= 2) {
      if ((differing & shift) == 0) continue;
      rows -= shift;
      for (int64_t j = 0; j < rows; ++j) {
        uint32_t* row = room_ + j * kLanes;
#pragma GCC ivdep
        for (int l = 0; l < kLanes; ++l) {
          const uint32_t stays = row[l], moves = row[shift * kLanes + static_cast<uint32_t>(l)];
          row[l] = (first[l] & shift) != 0 ? moves : stays;
        }
      }
    }
    phase_ &= ~static_cast<int64_t>(differing);
    all_made_ = true;
  }

  const PhiloxKeys* keys_ = nullptr;
  uint64_t step_ = 0;
  uint32_t* room_;
  uint64_t blocks_[kLanes];  // the block of each run's first element
  int64_t phase_ = 0;        // rows before the first row in the first blocks
  bool all_made_ = false;
};

}  // namespace tandem::kernels
