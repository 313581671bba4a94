// The rows of the bare loops: what a store takes at least. Ids from 1 on, in lines of four slots that are looked up and fetched ahead in
// two stages; rows of f32 in huge pages, in an order of their own. Nothing is checked, created or moved.
// Thread rule: finding and fetching from any thread; rows follow their user's rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/memory/buffer.h"
#include "kernels/base/random.h"

namespace tandem::bare {

inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kAhead = 16;  // ids from one stage to the next

// Any of 2^bits places for an id.
inline size_t Spread(uint64_t id, int bits) { return (id * 0x9e3779b97f4a7c15ULL) >> (64 - bits); }

// kCache: 3 for the first, 2 for the second.
template <size_t kFloats, int kCache = 3>
inline void FetchRow(const float* row) {
#pragma GCC unroll 8
  for (size_t column = 0; column < kFloats; column += kCacheLine / sizeof(float)) __builtin_prefetch(row + column, 0, kCache);
}

// kCount rows of kFloats f32, each behind kHeaderFloats that nobody reads, found in 2^kLineBits lines.
template <uint64_t kCount, size_t kFloats, int kLineBits, size_t kHeaderFloats = 0>
class RowsOf {
 public:
  RowsOf()
      : index_(Buffer::Allocate(kLines * sizeof(Line))),
        rows_(Buffer::Allocate(kCount * kStride * sizeof(float))),
        lines_(static_cast<Line*>(index_->data())),
        values_(static_cast<float*>(rows_->data())) {
    std::fill(lines_, lines_ + kLines, Line{});
    std::fill(values_, values_ + kCount * kStride, 0.0f);
    std::vector<uint32_t> order(kCount);
    for (uint32_t i = 0; i < kCount; ++i) order[i] = i;
    for (uint32_t i = kCount - 1; i > 0; --i) std::swap(order[i], order[RandomBelow({1, 1}, 0, i, i + 1)]);
    for (uint64_t id = 1; id <= kCount; ++id) Insert(id, order[id - 1]);
  }

  void FetchIndex(uint64_t id) const { __builtin_prefetch(&lines_[Spread(id, kLineBits)]); }
  // REQUIRES: 1 <= id <= kCount.
  uint32_t Find(uint64_t id) const {
    for (size_t line = Spread(id, kLineBits);; line = (line + 1) % kLines) {
      uint64_t found = 0;  // from 1 on; the slots of a line are compared without a branch
      for (const Slot& slot : lines_[line].slots) found |= slot.id == id ? slot.number + 1 : 0;
      if (found != 0) return static_cast<uint32_t>(found - 1);
    }
  }
  void Fetch(uint32_t number) const { FetchRow<kFloats>(row(number)); }
  float* row(uint32_t number) const { return values_ + size_t{number} * kStride + kHeaderFloats; }

 private:
  static constexpr size_t kLines = size_t{1} << kLineBits, kStride = kHeaderFloats + kFloats;
  struct Slot {
    uint64_t id, number;
  };
  struct alignas(kCacheLine) Line {
    Slot slots[4];
  };

  void Insert(uint64_t id, uint32_t number) {
    for (size_t line = Spread(id, kLineBits);; line = (line + 1) % kLines) {
      for (Slot& slot : lines_[line].slots) {
        if (slot.id != 0) continue;
        slot = {id, number};
        return;
      }
    }
  }

  const std::shared_ptr<Buffer> index_, rows_;
  Line* const lines_;
  float* const values_;
};

// Those of `tandem bench pull-push`.
inline constexpr uint64_t kNumRows = 1000000;
inline constexpr size_t kDim = 64, kRowBytes = kDim * sizeof(float);
using Rows = RowsOf<kNumRows, kDim, /*kLineBits=*/19>;  // 0.48 full

// Calls visit(i) for i from 0 to count - 1, after index and row of ids[i] were asked for ahead; numbers[i] is then the row's.
template <class Rows, class Visit>
void ForEachFound(const Rows& rows, const uint64_t* ids, size_t count, uint32_t* numbers, const Visit& visit) {
  for (size_t i = 0; i < count + 2 * kAhead; ++i) {
    if (i < count) rows.FetchIndex(ids[i]);
    if (i >= kAhead && i - kAhead < count) {
      numbers[i - kAhead] = rows.Find(ids[i - kAhead]);
      rows.Fetch(numbers[i - kAhead]);
    }
    if (i >= 2 * kAhead) visit(i - 2 * kAhead);
  }
}

}  // namespace tandem::bare
