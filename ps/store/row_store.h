// Records of equal size found by a 64-bit id (IdIndex), in one array that grows without being
// copied.
// Thread rule: one thread at a time. Records move when the store grows, so a pointer is valid until
// the next Insert.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/growing_memory.h"
#include "ps/store/id_index.h"
#include "ps/store/record_prefetch.h"

namespace tandem::ps {

// Copies like memcpy, but inlined into loops compiled for the widest vectors. A memcpy whose length
// is known only at run time is not inlined.
inline void CopyBytes(void* target, const char* source, size_t bytes) {
  char* const to = static_cast<char*>(target);
  size_t at = 0;
  for (; at + 256 <= bytes; at += 256) {
#pragma GCC unroll 4
    for (size_t line = 0; line < 256; line += 64)
      std::memcpy(to + at + line, source + at + line, 64);
  }
  for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, source + at, 64);
  for (; at + sizeof(float) <= bytes; at += sizeof(float))
    std::memcpy(to + at, source + at, sizeof(float));
  for (; at < bytes; ++at) to[at] = source[at];
}

class RowStore {
 public:
  // `salt` is the salt of IdIndex: it decides where records lie and in what order they are visited.
  // A record has `stride` bytes and begins with its id.
  // REQUIRES: stride >= 8.
  RowStore(uint64_t salt, size_t stride);

  size_t size() const { return index_.size(); }
  size_t stride() const { return stride_; }
  size_t index_bytes() const { return index_.num_bytes(); }
  // Bytes from the first one in use to the last, including unused records.
  size_t record_bytes() const { return index_.end() * stride_; }

  // Returns the record, or null if the id is absent.
  char* Find(uint64_t id) const { return Record(index_.Find(id)); }
  // Returns a new record, zero but for its id.
  // REQUIRES: id != 0; the id is absent.
  char* Insert(uint64_t id);
  // Calls visit(record) for each record, in any order.
  template <class Visit>
  void ForEachRecord(const Visit& visit) const {
    for (uint64_t number = 0; number < index_.end(); ++number) {
      if (index_.IsUsed(number)) visit(Record(number));
    }
  }
  // All numbers of records are below end_number(). A record keeps its number.
  uint64_t end_number() const { return index_.end(); }
  uint64_t NumberOf(const char* record) const {
    // The offset is a multiple of the stride. So a multiplication by the inverse divides by the
    // stride's odd factor.
    return (static_cast<uint64_t>(record - records_.data()) >> std::countr_zero(stride_)) *
           odd_inverse_;
  }
  // Writes the number of each id's record, or IdIndex::kNone. Returns how many ids are absent.
  size_t FindNumbers(absl::Span<const uint64_t> ids, uint64_t* numbers) const;
  // Calls visit(i, record) for each number, in order, and prefetches `bytes` from `offset` on of
  // the records that follow. The record of IdIndex::kNone is null; a visit of null may Insert. The
  // loop and a copy of `visit` are compiled for the widest vectors (vectorise.h), except calls out
  // of line.
  template <class Visit>
  void ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes,
                     const Visit& visit);

 private:
  // Finds at most Away::kMaxIds ids.
  size_t FindBlock(absl::Span<const uint64_t> ids, uint64_t* numbers) const;
  char* Record(uint64_t number) const {
    return number == IdIndex::kNone ? nullptr : records_.data() + number * stride_;
  }

  const size_t stride_;
  const uint64_t odd_inverse_;  // inverse of the stride's odd factor, modulo 2^64
  IdIndex index_;
  GrowingMemory records_;
};

template <class Visit>
void RowStore::ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes,
                             const Visit& visit) {
  kernels::Vectorised([=, this, lines = RecordPrefetch(stride_, offset, bytes)](auto) {
    // Prefetches a run at a time: where each prefetch waits for a page walk, adjacent prefetches
    // wait together.
    constexpr size_t kRun = RecordPrefetch::kAhead;
    size_t fetched = size() == 0 ? numbers.size() : 0;  // an empty store has no memory to prefetch
    const auto fetch_to = [&](size_t end) __attribute__((always_inline)) {
      for (end = std::min(end, numbers.size()); fetched < end; ++fetched) {
        const uint64_t number = numbers[fetched];
        lines.Fetch(records_.data() + (number == IdIndex::kNone ? 0 : number * stride_) + offset);
      }
    };
    fetch_to(kRun);
    for (size_t i = 0; i < numbers.size();) {
      fetch_to(i + 2 * kRun);
      for (const size_t end = std::min(i + kRun, numbers.size()); i < end; ++i)
        visit(i, Record(numbers[i]));
    }
  });
}

}  // namespace tandem::ps
