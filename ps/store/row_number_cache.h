// The numbers of rows that were pulled for a step. The push of the step names the same ids, mostly
// in the same pieces, and so need not look them up again. Ids are compared one by one, so a piece
// of other ids is never mistaken for a known one.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::ps {

class RowNumberCache {
 public:
  // Returns room for the numbers of `ids`, or null if enough is remembered already. The caller
  // fills the room before the next call.
  uint64_t* Add(absl::Span<const uint64_t> ids) {
    if (ids.empty() || num_ids_ + ids.size() > kMaxIds) return nullptr;
    num_ids_ += ids.size();
    if (num_pieces_ == pieces_.size()) pieces_.emplace_back();
    Piece& piece = pieces_[num_pieces_++];
    piece.ids.assign(ids.begin(), ids.end());
    piece.numbers.resize(ids.size());
    return piece.numbers.data();
  }
  // Undoes the last Add.
  // REQUIRES: the last Add returned room.
  void DropLast() { num_ids_ -= pieces_[--num_pieces_].ids.size(); }
  // Returns the numbers of exactly these ids in this order, or empty if they are unknown.
  absl::Span<const uint64_t> Find(absl::Span<const uint64_t> ids) const {
    for (size_t i = 0; i < num_pieces_; ++i) {
      const Piece& piece = pieces_[i];
      if (piece.ids.size() != ids.size() || piece.ids.front() != ids.front()) continue;
      if (std::equal(ids.begin(), ids.end(), piece.ids.begin())) return piece.numbers;
    }
    return {};
  }
  // Forgets all numbers and keeps the memory.
  void Clear() { num_pieces_ = num_ids_ = 0; }

 private:
  static constexpr size_t kMaxIds = size_t{1} << 20;  // 16 MB
  struct Piece {
    std::vector<uint64_t> ids, numbers;
  };
  std::vector<Piece> pieces_;
  size_t num_pieces_ = 0, num_ids_ = 0;
};

}  // namespace tandem::ps
