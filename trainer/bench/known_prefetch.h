// Prefetches rows whose places are known, in the fewest instructions and into either cache: the
// ceiling that `bench store` compares tables with. While a processor waits for lines, it looks some
// hundreds of instructions ahead. Other instructions among these leave fewer lines in flight.
// Thread rule: a value.
#pragma once

#include <cstddef>

namespace tandem::bench {

// The constructor computes what all records share. One jump, always to the same place, leads to one
// prefetch per line. With a loop instead, rows that caches held were copied a sixth slower (AMD Zen
// 5).
class KnownPrefetch {
 public:
  static constexpr int kFirstCache = 3, kSecondCache = 2;

  // Prefetches `bytes` from `offset` on, in records of `stride` bytes. The first record begins a
  // line.
  // REQUIRES: bytes > 0.
  KnownPrefetch(size_t stride, size_t offset, size_t bytes)
      : lines_((bytes + kLine - 1) / kLine),
        last_(bytes - 1),
        may_end_in_another_(stride % kLine != 0 || offset % kLine + last_ % kLine >= kLine) {}

  template <int kCache>
  __attribute__((always_inline)) void Into(const char* from) const {
    const auto fetch = [=](size_t line) __attribute__((always_inline)) {
      __builtin_prefetch(from + line * kLine, 0, kCache);
    };
    switch (lines_) {
      default:
        for (size_t line = 9; line < lines_; ++line) fetch(line);
        [[fallthrough]];
      case 9:
        fetch(8);
        [[fallthrough]];
      case 8:
        fetch(7);
        [[fallthrough]];
      case 7:
        fetch(6);
        [[fallthrough]];
      case 6:
        fetch(5);
        [[fallthrough]];
      case 5:
        fetch(4);
        [[fallthrough]];
      case 4:
        fetch(3);
        [[fallthrough]];
      case 3:
        fetch(2);
        [[fallthrough]];
      case 2:
        fetch(1);
        [[fallthrough]];
      case 1:
        fetch(0);
    }
    if (may_end_in_another_) __builtin_prefetch(from + last_, 0, kCache);
  }

 private:
  static constexpr size_t kLine = 64;
  const size_t lines_, last_;
  const bool may_end_in_another_;
};

}  // namespace tandem::bench
