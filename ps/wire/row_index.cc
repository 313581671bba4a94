#include "ps/wire/row_index.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace tandem::ps {
namespace {

constexpr size_t kMinLines = 4;

size_t MaxSize(size_t num_slots) { return num_slots * 3 / 5; }

}  // namespace

RowIndex::RowIndex(size_t expected, uint64_t multiplier) : multiplier_(multiplier) {
  TANDEM_CHECK_EQ(multiplier % 2, 1u);
  size_t lines = kMinLines;
  while (expected > MaxSize(lines * kSlotsPerLine)) lines *= 2;
  lines_.resize(lines);
  max_size_ = MaxSize(lines * kSlotsPerLine);
  shift_ = 64 - std::countr_zero(lines);
}

uint64_t RowIndex::Find(uint64_t id) const {
  for (size_t line = LineOf(id);; line = Next(line)) {
    for (uint32_t slot = 0; slot < kSlotsPerLine; ++slot) {
      if (lines_[line].ids[slot] == id) return lines_[line].numbers[slot];
    }
    // The slots of a line fill in order, so a free last slot ends the probe.
    if (lines_[line].ids[kSlotsPerLine - 1] == 0) return kAbsent;
  }
}

void RowIndex::Clear() {
  if (size_ == 0) return;
  if (size_ * 8 > max_size_) {
    std::memset(static_cast<void*>(lines_.data()), 0, lines_.size() * sizeof(Line));
  } else {
    *this = RowIndex(size_, multiplier_);
  }
  size_ = 0;
}

void RowIndex::Grow() {
  std::vector<Line> old(lines_.size() * 2);
  old.swap(lines_);
  --shift_;
  max_size_ = MaxSize(lines_.size() * kSlotsPerLine);
  size_ = 0;
  for (const Line& line : old) {
    for (uint32_t slot = 0; slot < kSlotsPerLine; ++slot) {
      if (line.ids[slot] != 0) FindOrInsert(line.ids[slot], line.numbers[slot]);
    }
  }
}

}  // namespace tandem::ps
