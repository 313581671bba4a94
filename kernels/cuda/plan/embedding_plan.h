// The order in which rows of one index are added. A segment of the sorted places is split, from its
// own start, into pieces of a fixed number of rows. So the segment's sum does not depend on other
// segments. A segment of several pieces leaves one partial sum per piece; PartialSlot says where.
// Plain arithmetic, tested without a device.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::kernels::cuda {

inline constexpr int kPieceRows = 32;

// The slot of the partial sum of the piece that starts at sorted place `head`. Two slots per window
// of kPieceRows places are enough. Reason: consider the pieces that start in one window and belong
// to segments of several pieces. At most one of them is its segment's first, and at most one is
// not.
constexpr int64_t PartialSlot(int64_t head, bool first) {
  return head / kPieceRows * 2 + (first ? 1 : 0);
}
constexpr int64_t NumPartialSlots(int64_t count) {
  return (count + kPieceRows - 1) / kPieceRows * 2;
}

// The widest word, in bytes, that can copy rows of `row_bytes` between two addresses.
constexpr size_t RowWordBytes(size_t row_bytes, uintptr_t to, uintptr_t from) {
  size_t word = 16;
  while ((row_bytes | to | from) % word != 0) word /= 2;
  return word;
}

}  // namespace tandem::kernels::cuda
