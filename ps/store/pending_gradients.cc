#include "ps/store/pending_gradients.h"

#include <utility>

#include "kernels/base/check.h"

namespace tandem::ps {

namespace {

constexpr size_t kWordBits = 64;
// How many ids ahead a row's bit is prefetched. Bits are accessed at random, and the nearest cache
// may not hold all bits.
constexpr size_t kLookAhead = 16;

uint64_t BitOf(uint64_t number) { return uint64_t{1} << number % kWordBits; }

}  // namespace

void PendingGradients::Add(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids,
                           absl::Span<const uint64_t> numbers, uint64_t end_number,
                           const WireRows& gradients, size_t row_bytes,
                           std::shared_ptr<const void> owner,
                           absl::Span<const uint32_t> positions) {
  const uint32_t push = static_cast<uint32_t>(pushes_.size());
  pushes_.push_back({slice, sequence, gradients, std::move(owner)});
  TANDEM_CHECK_LT(gradients_.size() + ids.size(), size_t{kNone}) << "gradients pending in one step";
  if (const size_t words = end_number / kWordBits + 1; pending_bits_.size() < words)
    pending_bits_.resize(words);
  WireRows::Cursor rows(gradients, row_bytes);
  uintptr_t addresses = 0;  // all addresses, or-ed
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kLookAhead < ids.size() && numbers[i + kLookAhead] != kAbsent) {
      __builtin_prefetch(&pending_bits_[numbers[i + kLookAhead] / kWordBits], 1);
    }
    const uint32_t gradient = static_cast<uint32_t>(gradients_.size());
    gradients_.push_back({rows.At(positions.empty() ? i : positions[i]), push, kNone});
    addresses |= reinterpret_cast<uintptr_t>(gradients_.back().bytes);
    // A row that was absent when its first gradient came stays among the absent rows.
    if (numbers[i] == kAbsent ||
        (absent_.size() > 0 && absent_.Find(ids[i]) != RowIndex::kAbsent)) {
      AddAbsent(ids[i], gradient);
      continue;
    }
    uint64_t& word = pending_bits_[numbers[i] / kWordBits];
    if ((word & BitOf(numbers[i])) == 0) {
      word |= BitOf(numbers[i]);
      AddRow(ids[i], numbers[i], gradient);
    } else {
      repeated_.push_back({numbers[i], gradient});
    }
  }
  all_floats_ &= gradients.format() == WIRE_F32 && addresses % alignof(float) == 0;
}

void PendingGradients::AddRow(uint64_t id, uint64_t number, uint32_t gradient) {
  ids_.push_back(id);
  numbers_.push_back(number);
  rows_.push_back({gradient, gradient, 1});
}

void PendingGradients::AddAbsent(uint64_t id, uint32_t gradient) {
  const auto [place, is_new] = absent_.FindOrInsert(id, rows_.size());
  if (is_new)
    AddRow(id, kAbsent, gradient);
  else
    Insert(rows_[place], gradient);
}

bool PendingGradients::Before(uint32_t a, uint32_t b) const {
  const Push &x = pushes_[gradients_[a].push], &y = pushes_[gradients_[b].push];
  return std::pair(x.slice, x.sequence) < std::pair(y.slice, y.sequence);
}

void PendingGradients::Insert(Row& row, uint32_t gradient) {
  ++row.count;
  if (!Before(gradient, row.tail)) {
    gradients_[row.tail].next = gradient;
    row.tail = gradient;
    return;
  }
  uint32_t* link = &row.head;
  while (!Before(gradient, *link)) link = &gradients_[*link].next;
  gradients_[gradient].next = *link;
  *link = gradient;
}

void PendingGradients::Link() {
  if (repeated_.empty()) return;
  repeated_bits_.resize(pending_bits_.size());
  for (const Repeated& repeated : repeated_)
    repeated_bits_[repeated.number / kWordBits] |= BitOf(repeated.number);
  // Rows with several gradients. Nobody chooses their numbers, so the hash needs no random seed.
  RowIndex places(repeated_.size());
  for (size_t row = 0; row < numbers_.size(); ++row) {
    const uint64_t number = numbers_[row];
    if (number == kAbsent || (repeated_bits_[number / kWordBits] & BitOf(number)) == 0) continue;
    places.FindOrInsert(number + 1, row);
  }
  for (const Repeated& repeated : repeated_) {
    repeated_bits_[repeated.number / kWordBits] = 0;
    Insert(rows_[places.Find(repeated.number + 1)], repeated.gradient);
  }
  repeated_.clear();
}

void PendingGradients::Clear() {
  for (const uint64_t number : numbers_) {
    if (number != kAbsent) pending_bits_[number / kWordBits] = 0;
  }
  pushes_.clear();
  gradients_.clear();
  ids_.clear();
  numbers_.clear();
  rows_.clear();
  repeated_.clear();
  absent_.Clear();
  all_floats_ = true;
}

}  // namespace tandem::ps
