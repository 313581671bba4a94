// An open-addressing map from an id to its place, kept for a call or a step. RowStore, not this
// map, finds the rows of a table. A slot is 16 bytes, four to a cache line, so a prefetched lookup
// usually touches one cached line. Probing is linear over lines. The map is at most 60 % full. Ids
// are never removed one by one. Id 0 marks a free slot and is never a key.
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

  // Holds `expected` ids without growing. `multiplier` is the multiplier of the hash. People who
  // choose ids should not know the multiplier.
  // REQUIRES: `multiplier` is odd.
  explicit RowIndex(size_t expected = 0, uint64_t multiplier = 0x9e3779b97f4a7c15ULL);

  size_t size() const { return size_; }
  void Prefetch(uint64_t id) const { __builtin_prefetch(&lines_[LineOf(id)]); }
  // Returns the id's number, or kAbsent.
  uint64_t Find(uint64_t id) const;
  // Returns the id's number and false; or, for a new id, stores `number` and returns `number` and
  // true.
  // REQUIRES: id != 0.
  std::pair<uint64_t, bool> FindOrInsert(uint64_t id, uint64_t number) {
    TANDEM_CHECK_NE(id, 0u);
    if (size_ == max_size_) Grow();
    for (size_t at = LineOf(id);; at = Next(at)) {
      Line& line = lines_[at];
      uint32_t equal = 0, used = 0;  // branch-free: the matching slot is unpredictable
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
  // Forgets all ids. Keeps the memory that this many ids need, so one large step does not slow down
  // all later steps.
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
  std::vector<Line> lines_;  // size is a power of two
  int shift_ = 0;            // 64 - log2(lines_.size())
  size_t size_ = 0, max_size_ = 0;
};

}  // namespace tandem::ps
