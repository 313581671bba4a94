#include "ps/row_index.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace tandem::ps {
namespace {

constexpr size_t kMinLines = 4;

bool TooFull(size_t size, size_t num_slots) { return size * 5 > num_slots * 3; }

}  // namespace

RowIndex::RowIndex(size_t expected, uint64_t multiplier) : multiplier_(multiplier) {
  TANDEM_CHECK_EQ(multiplier % 2, 1u);
  size_t lines = kMinLines;
  while (TooFull(expected, lines * kSlotsPerLine)) lines *= 2;
  lines_.resize(lines);
  shift_ = 64 - std::countr_zero(lines);
}

uint64_t RowIndex::Find(uint64_t id) const {
  for (size_t line = LineOf(id);; line = Next(line)) {
    for (int slot = 0; slot < kSlotsPerLine; ++slot) {
      if (lines_[line].ids[slot] == id) return lines_[line].numbers[slot];
    }
    // Slots of a line fill in order: a free last slot ends the probe.
    if (lines_[line].ids[kSlotsPerLine - 1] == 0) return kAbsent;
  }
}

std::pair<uint64_t, bool> RowIndex::FindOrInsert(uint64_t id, uint64_t number) {
  TANDEM_CHECK_NE(id, 0u);
  const uint64_t found = Find(id);
  if (found != kAbsent) return {found, false};
  if (TooFull(size_ + 1, lines_.size() * kSlotsPerLine)) Grow();
  Insert(id, number);
  ++size_;
  return {number, true};
}

void RowIndex::Clear() {
  if (size_ == 0) return;
  if (TooFull(size_ * 8, lines_.size() * kSlotsPerLine)) {
    std::memset(static_cast<void*>(lines_.data()), 0, lines_.size() * sizeof(Line));
  } else {
    *this = RowIndex(size_, multiplier_);
  }
  size_ = 0;
}

void RowIndex::Insert(uint64_t id, uint64_t number) {
  for (size_t line = LineOf(id);; line = Next(line)) {
    for (int slot = 0; slot < kSlotsPerLine; ++slot) {
      if (lines_[line].ids[slot] != 0) continue;
      lines_[line].ids[slot] = id;
      lines_[line].numbers[slot] = number;
      return;
    }
  }
}

void RowIndex::Grow() {
  std::vector<Line> old(lines_.size() * 2);
  old.swap(lines_);
  --shift_;
  for (const Line& line : old) {
    for (int slot = 0; slot < kSlotsPerLine; ++slot) {
      if (line.ids[slot] != 0) Insert(line.ids[slot], line.numbers[slot]);
    }
  }
}

}  // namespace tandem::ps
