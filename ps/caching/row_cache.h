// A bounded cache of rows of one table, found by id. A new row replaces a seldom used one: CLOCK
// with a use count for each place, which the hand decrements as it passes (GCLOCK: Smith,
// "Sequentiality and prefetching in database systems", 1978). Ids of every batch stay while ids of
// a long tail pass through. LFU would do the same, but GCLOCK costs a byte a row and no heap. A row
// that is no longer used leaves in time. The hand passes a limited number of places per insertion;
// if all are in use, the new row is not cached.
// Thread rule: one thread at a time. Memory grows in blocks with the largest number of rows.
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

  // A row has `row_values` floats.
  // REQUIRES: capacity < 2^32 - 1.
  RowCache(size_t capacity, size_t row_values);

  size_t size() const { return places_.size(); }
  // Returns the place of an id's row, or kNone. A row keeps its place until it is replaced or
  // erased.
  uint32_t Find(uint64_t id) const;
  // Returns a place for a row that has none, or kNone if there is no room. The values are
  // unspecified and the version is 0.
  // REQUIRES: id != 0.
  uint32_t Insert(uint64_t id);
  // Removes the row.
  // REQUIRES: the row is not pinned.
  void Erase(uint32_t place);
  // Removes all rows except pinned rows.
  void Clear();

  // REQUIRES, for the functions below: a row is at `place`.
  uint64_t id(uint32_t place) const { return rows_[place].id; }
  uint32_t version(uint32_t place) const { return rows_[place].version; }
  void set_version(uint32_t place, uint32_t version) { rows_[place].version = version; }
  float* values(uint32_t place) {
    return blocks_[place / kBlock].get() + place % kBlock * row_values_;
  }
  void CountUse(uint32_t place);
  // A pinned row is not replaced.
  bool pinned(uint32_t place) const { return rows_[place].pinned; }
  void Pin(uint32_t place, bool pinned) { rows_[place].pinned = pinned; }

 private:
  static constexpr size_t kBlock = 1024;
  static constexpr uint8_t kMaxUses = 7;
  static constexpr int kMaxPassed = 256;  // places that the hand passes for one insertion
  struct Row {
    uint64_t id = 0;  // 0: the place is free
    uint32_t version = 0;
    uint8_t uses = 0;
    bool pinned = false;
  };

  // Returns a free place, replacing a row if necessary, or kNone.
  uint32_t MakeRoom();

  const size_t capacity_, row_values_;
  absl::flat_hash_map<uint64_t, uint32_t> places_;  // place by id
  std::vector<Row> rows_;
  std::vector<std::unique_ptr<float[]>> blocks_;
  std::vector<uint32_t> free_;  // free places below rows_.size()
  uint32_t hand_ = 0;
};

}  // namespace tandem::ps
