#include "ps/store/id_index.h"

#include "kernels/base/check.h"

namespace tandem::ps {

IdIndex::IdIndex(uint64_t salt, uint64_t max_of_line)
    : salt_(salt), max_of_line_(max_of_line), columns_(kNumColumns) {
  TANDEM_CHECK(max_of_line >= 1 && max_of_line <= 7) << max_of_line;
  EnsureLines(1);
}

uint64_t IdIndex::Insert(uint64_t id) {
  TANDEM_CHECK_NE(id, 0u);
  const Hashed hash{Hash(salt_, id)};
  Column& column = columns_[hash.column()];
  TANDEM_CHECK_LT(column.num_ids, ~uint32_t{0});
  const uint32_t place = column.num_ids;
  if (place + uint64_t{1} > max_of_line_ * column.num_lines) GrowColumn(hash.column());
  while (!Place(hash.column(), HomeOf(hash, column.num_lines), place)) GrowColumn(hash.column());
  ++column.num_ids;
  ++size_;
  num_layers_ = std::max<uint64_t>(num_layers_, column.num_ids);
  return uint64_t{place} << kColumnBits | hash.column();
}

bool IdIndex::Place(uint64_t column, const Home& home, uint32_t place) {
  const uint32_t num_lines = columns_[column].num_lines;
  uint64_t line = home.line;
  for (uint64_t distance = 0; distance <= kMaxDistance; ++distance) {
    for (uint64_t& slot : LineAt(column, line).slots) {
      if (slot != 0) continue;
      slot = home.KeyAt(distance) | (uint64_t{place} + 1);
      return true;
    }
    if (++line == num_lines) line = 0;
  }
  return false;
}

void IdIndex::EnsureLines(uint64_t num_lines) {
  if (num_lines <= num_layers_of_lines_) return;
  num_layers_of_lines_ = num_lines;
  lines_.Grow(num_lines * kNumColumns * sizeof(Line));
}

uint64_t IdIndex::BitsOf(uint64_t column, uint64_t home_line, uint64_t slot) const {
  const uint32_t num_lines = columns_[column].num_lines;
  const uint64_t below_rest = PlaceAndDistanceBits(num_lines);
  // The least place whose product with num_lines is not below this product. The next place is
  // beyond what the rest of the hash tells apart.
  const unsigned __int128 product =
      static_cast<unsigned __int128>(home_line) << 64 | (slot >> below_rest << below_rest);
  const uint64_t step = uint64_t{num_lines} << kColumnBits;
  return static_cast<uint64_t>((product + (step - 1)) / step) << kColumnBits | column;
}

void IdIndex::TakeOut(uint64_t column) {
  const uint64_t num_lines = columns_[column].num_lines;
  const uint64_t place_bits = HomeOf({0}, columns_[column].num_lines).place_bits;
  taken_.clear();
  for (uint64_t line = 0; line < num_lines; ++line) {
    __builtin_prefetch(&LineAt(column, std::min(line + kLookAhead, num_lines - 1)), 1);
    for (uint64_t& slot : LineAt(column, line).slots) {
      if (slot == 0) break;
      const uint64_t distance = slot >> place_bits & kMaxDistance;
      // The path from home may wrap around the column's end.
      const uint64_t home = (line + num_lines - distance % num_lines) % num_lines;
      const uint64_t place = (slot & ((uint64_t{1} << place_bits) - 1)) - 1;
      taken_.push_back({{BitsOf(column, home, slot)}, static_cast<uint32_t>(place)});
      slot = 0;
    }
  }
}

void IdIndex::GrowColumn(uint64_t column) {
  TakeOut(column);
  uint32_t& num_lines = columns_[column].num_lines;
  bool all_placed = false;
  while (!all_placed) {
    num_lines += std::max<uint32_t>(1, num_lines / 16);
    EnsureLines(num_lines);
    all_placed = true;
    for (size_t i = 0; i < taken_.size() && all_placed; ++i) {
      const Taken& ahead = taken_[std::min(i + kLookAhead, taken_.size() - 1)];
      __builtin_prefetch(&LineAt(column, HomeOf(ahead.hash, num_lines).line), 1);
      all_placed = Place(column, HomeOf(taken_[i].hash, num_lines), taken_[i].place);
    }
    if (all_placed) break;
    for (uint64_t line = 0; line < num_lines; ++line) LineAt(column, line) = Line{};
  }
}

}  // namespace tandem::ps
