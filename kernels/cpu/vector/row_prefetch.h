// Prefetches rows that will soon be read or written into L2, line by line, evenly spread between
// pieces of arithmetic. Only a hint: no result depends on it. Evenly, because a burst would fill
// the few line fill buffers and block the arithmetic's own lines. Into L2, because the computation
// fills L1. Rows to be written are prefetched for reading: no other core has them, so the core may
// write them when they arrive. Inline bodies for Vectorised().
// Thread rule: one thread per object.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::kernels {

class RowPrefetch {
 public:
  // Adds rows of `row_bytes`, `stride_bytes` apart; ignored if the list is full. Rows that continue
  // the rows added last are merged with them. Consecutive lines arrive twice as fast, because the
  // hardware prefetcher predicts them.
  void Add(const void* first, int64_t stride_bytes, int64_t num_rows, int64_t row_bytes) {
    if (num_rows <= 0 || row_bytes <= 0) return;
    const Range range{static_cast<const char*>(first), stride_bytes, num_rows, row_bytes};
    if (count_ > 0 && ranges_[count_ - 1].IsContinuedBy(range)) {
      Range& last = ranges_[count_ - 1];
      lines_ += num_rows * (LinesOf(last.row_bytes + row_bytes) - LinesOf(last.row_bytes));
      last.row_bytes += row_bytes;
      return;
    }
    if (count_ == kMaxRanges) return;
    ranges_[count_++] = range;
    lines_ += num_rows * LinesOf(row_bytes);
  }

  // Spreads the prefetches over `pieces` pieces of arithmetic. Call after all Adds.
  void SpreadOver(int64_t pieces) {
    pieces_ = std::max<int64_t>(1, pieces);
    per_line_ = lines_ == 0 ? pieces_ : std::max<int64_t>(1, pieces_ / lines_);
    excess_ = lines_ == 0 || pieces_ < lines_ ? 0 : pieces_ % lines_;
    if (count_ > 0) BeginRange();
  }

  // Call after some pieces: issues the prefetches that are due.
  void Pass(int64_t pieces) {
    for (due_ += pieces * lines_; due_ >= pieces_; due_ -= pieces_) Fetch();
  }
  // For a loop that counts pieces itself: returns after how many pieces to call Fetch() once. Some
  // loops get one more than others, so that the total fits.
  int64_t PiecesPerLine() {
    const bool one_more = (due_ += excess_) >= lines_;
    if (one_more) due_ -= lines_;
    return per_line_ + one_more;
  }
  void Fetch() {
    if (line_ == row_end_) return;
    __builtin_prefetch(line_, 0, 2);
    line_ += kLineBytes;
    if (line_ == row_end_) EndRow();
  }

  int64_t LinesLeft() const {
    if (line_ == row_end_) return 0;
    int64_t lines = (row_end_ - line_ + (rows_left_ - 1) * row_span_) / kLineBytes;
    for (int r = current_ + 1; r < count_; ++r)
      lines += ranges_[r].num_rows * LinesOf(ranges_[r].row_bytes);
    return lines;
  }

 private:
  static constexpr int kMaxRanges = 8;
  static constexpr int64_t kLineBytes = 64;
  struct Range {
    const char* first;  // the first row
    int64_t stride_bytes, num_rows, row_bytes;

    // True if each row of `other` begins where the same row of this range ends.
    bool IsContinuedBy(const Range& other) const {
      return first + row_bytes == other.first && stride_bytes == other.stride_bytes &&
             num_rows == other.num_rows;
    }
  };

  static int64_t LinesOf(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }
  void BeginRange() {
    row_span_ = LinesOf(ranges_[current_].row_bytes) * kLineBytes;
    next_row_ = ranges_[current_].stride_bytes - row_span_;
    rows_left_ = ranges_[current_].num_rows;
    line_ = ranges_[current_].first;
    row_end_ = line_ + row_span_;
  }
  void EndRow() {
    if (--rows_left_ == 0) {
      if (++current_ < count_) BeginRange();
      return;
    }
    line_ += next_row_;
    row_end_ = line_ + row_span_;
  }

  // The next line and the row's end; equal: none left.
  const char *line_ = nullptr, *row_end_ = nullptr;
  int64_t row_span_ = 0, next_row_ = 0, rows_left_ = 0;  // in the current range
  int64_t due_ = 0, lines_ = 0, pieces_ = 1, per_line_ = 1, excess_ = 0;
  int count_ = 0, current_ = 0;
  Range ranges_[kMaxRanges];
};

}  // namespace tandem::kernels
