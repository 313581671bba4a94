// Which numbers of the random stream a row of a dropout looks at. Plain arithmetic, tested without a device.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda {

inline constexpr int kBlockElements = 8;  // elements that one block of Philox decides

// Bytes of a row of the mask: whole words of 64 elements.
constexpr int64_t MaskRowBytes(int64_t columns) { return (columns + 63) / 64 * 8; }

// Blocks to draw per row. A row starts at any element of a block unless blocks divide rows, and then touches one more. With a mask
// its last word is drawn to the end, as on a CPU.
constexpr int64_t DropoutBlocksPerRow(int64_t columns, bool has_mask) {
  const int64_t whole = has_mask ? MaskRowBytes(columns) : (columns + kBlockElements - 1) / kBlockElements;
  return columns % kBlockElements == 0 ? whole : whole + 1;
}

// Bit e: element e of a block lies in a row of `columns` elements where element 0 lies at `column`, which may be negative.
constexpr uint32_t ElementsInRow(int64_t column, int64_t columns) {
  const int64_t low = column < 0 ? -column : 0;
  const int64_t high = columns - column < kBlockElements ? columns - column : kBlockElements;
  if (low >= high) return 0;
  return ((1u << high) - 1) & ~((1u << low) - 1);
}

}  // namespace tandem::kernels::cuda
