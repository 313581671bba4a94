// How attention is cut into blocks and laid out in shared memory, without knowing how long the sequences are: their offsets lie on
// the device. Plain functions for host and device.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace tandem::kernels::cuda {

// The operations with the height of their blocks given (TakesTallBlocks), which does not change a bit of the result.
void AttentionForward(const AttentionForwardArgs& args, bool tall, Stream& stream);
void AttentionBackward(const AttentionBackwardArgs& args, bool tall, Stream& stream);

// Every sequence is cut into blocks of `rows` tokens. Block i of sequence b has slot FirstSlot(offsets[b], b) + i of the grid:
// there is always room before the next sequence's first slot, and what stays free ends at once.
constexpr int64_t FirstSlot(int64_t offset, int64_t sequence, int rows) { return offset / rows + sequence; }
constexpr int64_t NumSlots(int64_t num_tokens, int64_t num_sequences, int rows) {
  return FirstSlot(num_tokens, num_sequences, rows);
}

// The search of a warp for the last sequence that has come by a slot: each lane probes one sequence, the number of lanes that have
// come says where to go on. Two steps for 1024 sequences. REQUIRES: sequence 0 has come by.
struct SlotSearch {
  int64_t low, high;  // it is in [low, high)

  constexpr bool Done() const { return high - low <= 1; }
  constexpr int64_t Step() const { return (high - low + 31) / 32; }
  constexpr int64_t Probe(int lane) const { return low + lane * Step(); }  // not below `high`: none
  constexpr void Narrow(int come) {
    const int64_t step = Step();
    low += come > 0 ? (come - 1) * step : 0;
    high = low + step < high ? low + step : high;
  }
};

// The depths that bf16 kernels are built for: heads of other depths are padded with zeros in shared memory.
constexpr int PaddedDepth(int64_t depth) {
  return depth <= 16 ? 16 : depth <= 32 ? 32 : depth <= 64 ? 64 : depth <= 96 ? 96 : 128;
}

// Whether a warp takes 32 rows rather than 16: each key that it reads then meets twice as many queries, but short sequences fill
// half of the rows, and few blocks do not fill a device.
constexpr bool TakesTallBlocks(int64_t num_tokens, int64_t num_sequences, int64_t num_heads) {
  constexpr int64_t kLong = 512, kManyBlocks = 256;
  return num_tokens >= kLong * num_sequences && num_tokens / 128 * num_heads >= kManyBlocks;
}

// Where 8 elements (16 bytes) of a row lie in a tile of rows of kDepth elements. Chunks of a row change places by its number, so
// that the same chunk of eight rows, which is what ldmatrix reads at once, lies in different banks.
template <int kDepth>
struct Swizzle {
  static constexpr int kChunks = kDepth / 8;
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // chunks that change places

  static constexpr int At(int row, int chunk) { return row * kDepth + (chunk ^ (row / (8 / kGroup) % kGroup)) * 8; }
  // At(row + rows, chunk + chunks), where what depends on the thread (row and chunk) and the constants (rows, a multiple of 8, and
  // chunks, an even number) hardly meet. REQUIRES: chunk is 0 or 1.
  static constexpr int Beyond(int row, int chunk, int rows, int chunks) {
    const int placed = chunk ^ (row / (8 / kGroup) % kGroup);
    return row * kDepth + ((chunks % kGroup) ^ placed) * 8 + (rows * kDepth + chunks / kGroup * kGroup * 8);
  }
};

}  // namespace tandem::kernels::cuda
