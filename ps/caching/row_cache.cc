#include "ps/caching/row_cache.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace tandem::ps {

RowCache::RowCache(size_t capacity, size_t row_values)
    : capacity_(capacity), row_values_(row_values) {
  TANDEM_CHECK_LT(capacity, size_t{kNone});
}

uint32_t RowCache::Find(uint64_t id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? kNone : found->second;
}

uint32_t RowCache::Insert(uint64_t id) {
  const uint32_t place = MakeRoom();
  if (place == kNone) return kNone;
  rows_[place] = {.id = id};
  const bool is_new = places_.emplace(id, place).second;
  TANDEM_CHECK(is_new) << "id " << id << " has a place";
  return place;
}

uint32_t RowCache::MakeRoom() {
  if (free_.empty() && rows_.size() < capacity_) {
    if (rows_.size() % kBlock == 0) {
      // Uninitialised memory, so that unused pages are never touched.
      blocks_.emplace_back(new float[std::min(kBlock, capacity_ - rows_.size()) * row_values_]);
    }
    rows_.emplace_back();
    return static_cast<uint32_t>(rows_.size() - 1);
  }
  for (int passed = 0; free_.empty() && passed < kMaxPassed && !rows_.empty(); ++passed) {
    const uint32_t place = hand_;
    hand_ = place + 1 == rows_.size() ? 0 : place + 1;
    Row& row = rows_[place];
    if (row.pinned) continue;
    if (row.uses > 0)
      --row.uses;
    else
      Erase(place);
  }
  if (free_.empty()) return kNone;
  const uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

void RowCache::Erase(uint32_t place) {
  TANDEM_CHECK(!rows_[place].pinned) << "id " << rows_[place].id;
  places_.erase(rows_[place].id);
  rows_[place] = Row();
  free_.push_back(place);
}

void RowCache::Clear() {
  for (uint32_t place = 0; place < rows_.size(); ++place) {
    if (rows_[place].id != 0 && !rows_[place].pinned) Erase(place);
  }
}

void RowCache::CountUse(uint32_t place) {
  if (rows_[place].uses < kMaxUses) ++rows_[place].uses;
}

}  // namespace tandem::ps
