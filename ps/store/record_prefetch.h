// Prefetches the records that a loop visits next. Every loop over records and gradients uses this
// one way and this one distance.
// Lines go to the second cache, which has room for them at any size of records. A processor has
// only some ten lines in flight to the first cache, and visits would wait for them.
// Thread rule: a value.
#pragma once

#include <cstddef>

namespace tandem::ps {

class RecordPrefetch {
 public:
  // A loop prefetches the record that it visits this many visits later.
  static constexpr size_t kAhead = 32;

  // Prefetches `bytes` from `offset` on, in records of `stride` bytes. The first record begins a
  // line.
  // REQUIRES: bytes > 0.
  RecordPrefetch(size_t stride, size_t offset, size_t bytes)
      : last_(bytes - 1),
        may_end_in_another_(stride % kLine != 0 || offset % kLine + last_ % kLine >= kLine) {}

  // `from` is where the bytes begin.
  __attribute__((always_inline)) void Fetch(const char* from) const {
    for (size_t at = 0; at <= last_; at += kLine) __builtin_prefetch(from + at, 0, kSecondCache);
    if (may_end_in_another_) __builtin_prefetch(from + last_, 0, kSecondCache);
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr int kSecondCache = 2;
  const size_t last_;
  const bool may_end_in_another_;
};

}  // namespace tandem::ps
