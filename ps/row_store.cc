#include "ps/row_store.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace tandem::ps {

namespace {

// Of eight slots.
uint64_t MaxRowsOfLine(size_t stride) { return stride >= 256 ? 5 : 7; }

}  // namespace

RowStore::RowStore(uint64_t salt, size_t stride) : salt_(salt), stride_(stride), max_rows_of_line_(MaxRowsOfLine(stride)), columns_(kNumColumns) {
  TANDEM_CHECK_GE(stride, sizeof(uint64_t));
  EnsureLines(1);
}

char* RowStore::Find(uint64_t id) const {
  const Hashed hash = Hash(salt_, id);
  const uint32_t number = FindNumber<kernels::InstructionSet::BASELINE>(hash);
  return number == kAbsent ? nullptr : Record(hash.column(), number);
}

char* RowStore::Insert(uint64_t id) {
  TANDEM_CHECK_NE(id, 0u);
  const Hashed hash = Hash(salt_, id);
  Column& column = columns_[hash.column()];
  TANDEM_CHECK_LT(column.num_rows, kAbsent);
  const uint32_t number = column.num_rows;
  if (number + uint64_t{1} > max_rows_of_line_ * column.num_lines) GrowColumn(hash.column());
  while (!Place(hash.column(), HomeOf(hash, column.num_lines), number)) GrowColumn(hash.column());
  ++column.num_rows;
  ++size_;
  if (column.num_rows > num_layers_of_records_) {
    num_layers_of_records_ = column.num_rows;
    records_.Grow(num_layers_of_records_ * kNumColumns * stride_);
  }
  char* const record = Record(hash.column(), number);
  std::memcpy(record, &id, sizeof(id));
  return record;
}

bool RowStore::Place(uint64_t column, const Home& home, uint32_t number) {
  const uint32_t num_lines = columns_[column].num_lines;
  uint64_t line = home.line;
  for (uint64_t distance = 0; distance <= kMaxDistance; ++distance) {
    for (uint64_t& slot : LineAt(column, line).slots) {
      if (slot != 0) continue;
      slot = home.SlotAt(distance) | (uint64_t{number} + 1);
      return true;
    }
    if (++line == num_lines) line = 0;
  }
  return false;
}

void RowStore::EnsureLines(uint64_t num_lines) {
  if (num_lines <= num_layers_of_lines_) return;
  num_layers_of_lines_ = num_lines;
  index_.Grow(num_lines * kNumColumns * sizeof(Line));
}

uint64_t RowStore::BitsOf(uint64_t column, uint64_t home_line, uint64_t slot) const {
  const uint64_t num_lines = columns_[column].num_lines;
  const int below_rest = HomeOf({0}, columns_[column].num_lines).number_bits + kDistanceBits;
  // The least place whose product with num_lines is not below this one; the next place's is beyond what the rest tells apart.
  const unsigned __int128 product = static_cast<unsigned __int128>(home_line) << 64 | (slot >> below_rest << below_rest);
  const uint64_t step = num_lines << kColumnBits;
  return static_cast<uint64_t>((product + (step - 1)) / step) << kColumnBits | column;
}

void RowStore::TakeOut(uint64_t column) {
  const uint64_t num_lines = columns_[column].num_lines;
  const int number_bits = HomeOf({0}, columns_[column].num_lines).number_bits;
  taken_.clear();
  for (uint64_t line = 0; line < num_lines; ++line) {
    __builtin_prefetch(&LineAt(column, std::min(line + kLookAhead, num_lines - 1)), 1);
    for (uint64_t& slot : LineAt(column, line).slots) {
      if (slot == 0) break;
      const uint64_t distance = slot >> number_bits & kMaxDistance;
      // The way from home may have gone round the column's end.
      const uint64_t home = (line + num_lines - distance % num_lines) % num_lines;
      const uint64_t number = (slot & ((uint64_t{1} << number_bits) - 1)) - 1;
      taken_.push_back({{BitsOf(column, home, slot)}, static_cast<uint32_t>(number)});
      slot = 0;
    }
  }
}

void RowStore::GrowColumn(uint64_t column) {
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
      all_placed = Place(column, HomeOf(taken_[i].hash, num_lines), taken_[i].number);
    }
    if (all_placed) break;
    for (uint64_t line = 0; line < num_lines; ++line) LineAt(column, line) = Line{};
  }
}

}  // namespace tandem::ps
