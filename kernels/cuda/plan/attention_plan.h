// The split of attention into blocks, and its layout in shared memory. The host does not know the
// sequences' lengths, because the offsets lie on the device. Plain functions for host and device.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace tandem::kernels::cuda {

// The operations with the height of their blocks given (TakesTallBlocks). The height changes no bit
// of the result.
void AttentionForward(const AttentionForwardArgs& args, bool tall, Stream& stream);
void AttentionBackward(const AttentionBackwardArgs& args, bool tall, Stream& stream);

// Every sequence is split into blocks of `rows` tokens. Block i of sequence b has slot
// FirstSlot(offsets[b], b) + i of the grid. A sequence's blocks always fit before the next
// sequence's first slot. Blocks of unused slots end at once.
constexpr int64_t FirstSlot(int64_t offset, int64_t sequence, int rows) {
  return offset / rows + sequence;
}
constexpr int64_t NumSlots(int64_t num_tokens, int64_t num_sequences, int rows) {
  return FirstSlot(num_tokens, num_sequences, rows);
}

// A warp's search for the last sequence whose first slot is at or before a given slot. Each lane
// probes one sequence; the number of lanes that succeed selects the next range. Takes two steps for
// 1024 sequences.
// REQUIRES: sequence 0 starts at or before the slot.
struct SlotSearch {
  int64_t low, high;  // the sequence is in [low, high)

  constexpr bool Done() const { return high - low <= 1; }
  constexpr int64_t Step() const { return (high - low + 31) / 32; }
  // None if not below `high`.
  constexpr int64_t Probe(int lane) const { return low + lane * Step(); }
  constexpr void Narrow(int come) {
    const int64_t step = Step();
    low += come > 0 ? (come - 1) * step : 0;
    high = low + step < high ? low + step : high;
  }
};

// The head depths that bf16 kernels are compiled for. Heads of other depths are padded with zeros
// in shared memory.
constexpr int PaddedDepth(int64_t depth) {
  return depth <= 16 ? 16 : depth <= 32 ? 32 : depth <= 64 ? 64 : depth <= 96 ? 96 : 128;
}

// True if a warp should take 32 rows, not 16. Each key then meets twice as many queries. But short
// sequences fill only half of the rows, and few blocks do not fill a device.
constexpr bool TakesTallBlocks(int64_t num_tokens, int64_t num_sequences, int64_t num_heads) {
  constexpr int64_t kLong = 512, kManyBlocks = 256;
  return num_tokens >= kLong * num_sequences && num_tokens / 128 * num_heads >= kManyBlocks;
}

// The place of 8 elements (16 bytes) in a tile of rows of kDepth elements. The row's number
// permutes its chunks. So the same chunk of eight rows, which ldmatrix reads at once, lies in eight
// different banks.
template <int kDepth>
struct Swizzle {
  static constexpr int kChunks = kDepth / 8;
  // Chunks that are permuted together.
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;

  static constexpr int At(int row, int chunk) {
    return row * kDepth + (chunk ^ (row / (8 / kGroup) % kGroup)) * 8;
  }
  // Equals At(row + rows, chunk + chunks). Separates the thread's part (row, chunk) from the
  // constants (rows, a multiple of 8; chunks, an even number) as far as possible.
  // REQUIRES: chunk is 0 or 1.
  static constexpr int Beyond(int row, int chunk, int rows, int chunks) {
    const int placed = chunk ^ (row / (8 / kGroup) % kGroup);
    return row * kDepth + ((chunks % kGroup) ^ placed) * 8 +
           (rows * kDepth + chunks / kGroup * kGroup * 8);
  }
};

}  // namespace tandem::kernels::cuda
