// The numbers of the random stream that a dropout row uses. Plain arithmetic, tested without a
// device.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda {

inline constexpr int kBlockElements = 8;  // elements of one Philox block

// The bytes of a row of the mask: whole words of 64 elements.
constexpr int64_t MaskRowBytes(int64_t columns) { return (columns + 63) / 64 * 8; }

// Blocks to draw per row. A row may start at any element of a block, and then touches one more
// block, unless blocks divide rows. With a mask, the mask's last word is drawn to its end, as on a
// CPU.
constexpr int64_t DropoutBlocksPerRow(int64_t columns, bool has_mask) {
  const int64_t whole =
      has_mask ? MaskRowBytes(columns) : (columns + kBlockElements - 1) / kBlockElements;
  return columns % kBlockElements == 0 ? whole : whole + 1;
}

// Bit e is set if element e of a block lies in a row of `columns` elements. Element 0 of the block
// lies at `column`, which may be negative.
constexpr uint32_t ElementsInRow(int64_t column, int64_t columns) {
  const int64_t low = column < 0 ? -column : 0;
  const int64_t high = columns - column < kBlockElements ? columns - column : kBlockElements;
  if (low >= high) return 0;
  return ((1u << high) - 1) & ~((1u << low) - 1);
}

}  // namespace tandem::kernels::cuda
