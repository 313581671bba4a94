// An open-addressing map from an id to its place, kept for a call or a step; a table's rows are found by RowStore. 16-byte slots,
// four to a cache line: a lookup that Prefetch announced usually touches one line that is already there. Linear probing over lines,
// at most 60 % full, nothing is ever removed singly. Id 0 marks a free slot and is never a key.
// Thread rule: one thread at a time; concurrent Finds are fine while nobody inserts.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/check.h"

namespace tandem::ps {

class RowIndex {
 public:
  static constexpr uint64_t kAbsent = ~uint64_t{0};

  // Holds `expected` ids without growing. The multiplier of the hash, which is odd, should not be known to those who choose ids.
  explicit RowIndex(size_t expected = 0, uint64_t multiplier = 0x9e3779b97f4a7c15ULL);

  size_t size() const { return size_; }
  void Prefetch(uint64_t id) const { __builtin_prefetch(&lines_[LineOf(id)]); }
  // The id's number, or kAbsent.
  uint64_t Find(uint64_t id) const;
  // The id's number and false; or, for a new id, `number` and true. REQUIRES: id != 0.
  std::pair<uint64_t, bool> FindOrInsert(uint64_t id, uint64_t number) {
    TANDEM_CHECK_NE(id, 0u);
    if (size_ == max_size_) Grow();
    for (size_t at = LineOf(id);; at = Next(at)) {
      Line& line = lines_[at];
      uint32_t equal = 0, used = 0;  // without branches: which slot it is cannot be predicted
      for (uint32_t slot = 0; slot < kSlotsPerLine; ++slot) {
        equal |= static_cast<uint32_t>(line.ids[slot] == id) << slot;
        used += line.ids[slot] != 0;
      }
      if (equal != 0) return {line.numbers[std::countr_zero(equal)], false};
      if (used == kSlotsPerLine) continue;
      line.ids[used] = id;
      line.numbers[used] = number;
      ++size_;
      return {number, true};
    }
  }
  // Forgets all ids and keeps the memory that so many need: one large step does not slow down all that follow.
  void Clear();

 private:
  static constexpr uint32_t kSlotsPerLine = 4;
  struct alignas(64) Line {
    uint64_t ids[kSlotsPerLine];
    uint64_t numbers[kSlotsPerLine];
  };

  // Multiplicative hashing: the top bits of the product depend on every bit of the id.
  size_t LineOf(uint64_t id) const { return (id * multiplier_) >> shift_; }
  size_t Next(size_t line) const { return (line + 1) & (lines_.size() - 1); }
  void Grow();

  uint64_t multiplier_;
  std::vector<Line> lines_;  // a power of two of them
  int shift_ = 0;            // 64 - log2(lines_.size())
  size_t size_ = 0, max_size_ = 0;
};

}  // namespace tandem::ps
