// Rows that will soon be read or written, fetched into the cache a few lines at a time between pieces of arithmetic, so that the
// processor waits for neither. A hint to it: no result depends on what is fetched. Inline bodies for Vectorised().
#pragma once

#include <cstdint>

namespace tandem::kernels {

class RowPrefetch {
 public:
  // Rows of `row_bytes`, `stride_bytes` apart. What does not fit in the list is not fetched.
  void Add(const void* first, int64_t stride_bytes, int64_t num_rows, int64_t row_bytes, bool write) {
    if (count_ < kMaxRanges && num_rows > 0) ranges_[count_++] = {static_cast<const char*>(first), stride_bytes, num_rows, row_bytes, write};
  }

  // Fetches the next few rows.
  void Step() {
    for (int i = 0; i < kRowsPerStep && current_ < count_; ++i) {
      Range& range = ranges_[current_];
      for (int64_t at = 0; at < range.row_bytes; at += kLineBytes) {
        if (range.write) __builtin_prefetch(range.row + at, 1, 2);
        else __builtin_prefetch(range.row + at, 0, 3);
      }
      range.row += range.stride_bytes;
      if (--range.num_rows == 0) ++current_;
    }
  }

 private:
  static constexpr int kMaxRanges = 8, kRowsPerStep = 6;
  static constexpr int64_t kLineBytes = 64;
  struct Range {
    const char* row;
    int64_t stride_bytes, num_rows, row_bytes;
    bool write;
  };
  Range ranges_[kMaxRanges];
  int count_ = 0, current_ = 0;
};

}  // namespace tandem::kernels
