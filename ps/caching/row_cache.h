// Some rows of one table, found by id, at most so many. A new row takes the place of one that is used seldom: CLOCK with a count of uses
// for each place, which the hand takes down one by one as it passes (GCLOCK: Smith, "Sequentiality and prefetching in database systems",
// 1978). So ids that come in every batch stay while those of a long tail pass through, as with LFU, for a byte a row and without a heap;
// and what was hot once is not hot for ever. The hand passes a few places for a row: where all of these are in use, the row stays out.
// Thread rule: one thread at a time. Memory grows with the rows that were there at a time, a block of them at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tandem::ps {

class RowCache {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // `row_values` floats a row. REQUIRES: capacity < 2^32 - 1.
  RowCache(size_t capacity, size_t row_values);

  size_t size() const { return places_.size(); }
  // The place of an id's row, or kNone. It stays there until it gives way to another or is erased.
  uint32_t Find(uint64_t id) const;
  // A place for a row that has none, its values unspecified and its version 0; kNone if there is no room. REQUIRES: id != 0.
  uint32_t Insert(uint64_t id);
  // REQUIRES: the row is not pinned.
  void Erase(uint32_t place);
  // All rows but pinned ones.
  void Clear();

  // REQUIRES, below: a place that has a row.
  uint64_t id(uint32_t place) const { return rows_[place].id; }
  uint32_t version(uint32_t place) const { return rows_[place].version; }
  void set_version(uint32_t place, uint32_t version) { rows_[place].version = version; }
  float* values(uint32_t place) { return blocks_[place / kBlock].get() + place % kBlock * row_values_; }
  void CountUse(uint32_t place);
  // A pinned row does not give way.
  bool pinned(uint32_t place) const { return rows_[place].pinned; }
  void Pin(uint32_t place, bool pinned) { rows_[place].pinned = pinned; }

 private:
  static constexpr size_t kBlock = 1024;
  static constexpr uint8_t kMaxUses = 7;
  static constexpr int kMaxPassed = 256;  // places for one insertion
  struct Row {
    uint64_t id = 0;  // 0: the place is free
    uint32_t version = 0;
    uint8_t uses = 0;
    bool pinned = false;
  };

  // A place that is free, after a row gave way if it must; or kNone.
  uint32_t MakeRoom();

  const size_t capacity_, row_values_;
  absl::flat_hash_map<uint64_t, uint32_t> places_;  // by id
  std::vector<Row> rows_;
  std::vector<std::unique_ptr<float[]>> blocks_;
  std::vector<uint32_t> free_;  // places below rows_.size()
  uint32_t hand_ = 0;
};

}  // namespace tandem::ps
