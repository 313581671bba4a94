// Records of equal size found by a 64-bit id (IdIndex), in one array that grows without being copied.
// Thread rule: one thread at a time. Records move when the store grows: a pointer is good until the next Insert.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/memory/growing_memory.h"
#include "kernels/cpu/vector/vectorise.h"
#include "ps/store/id_index.h"
#include "ps/store/record_prefetch.h"

namespace tandem::ps {

// Inlined into loops compiled for the widest vectors, which memcpy of a length known at run time only is not.
inline void CopyBytes(void* target, const char* source, size_t bytes) {
  char* const to = static_cast<char*>(target);
  size_t at = 0;
  for (; at + 256 <= bytes; at += 256) {
#pragma GCC unroll 4
    for (size_t line = 0; line < 256; line += 64) std::memcpy(to + at + line, source + at + line, 64);
  }
  for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, source + at, 64);
  for (; at + sizeof(float) <= bytes; at += sizeof(float)) std::memcpy(to + at, source + at, sizeof(float));
  for (; at < bytes; ++at) to[at] = source[at];
}

class RowStore {
 public:
  // `salt` is IdIndex's: it decides where records lie and in what order they are visited. `stride` bytes a record, which begins with its
  // id. REQUIRES: stride >= 8.
  RowStore(uint64_t salt, size_t stride);

  size_t size() const { return index_.size(); }
  size_t stride() const { return stride_; }
  size_t index_bytes() const { return index_.num_bytes(); }
  // From the first byte in use to the last: the ragged end is counted whole.
  size_t record_bytes() const { return index_.end() * stride_; }

  // Null if there is none.
  char* Find(uint64_t id) const { return Record(index_.Find(id)); }
  // A new record, zero but for its id. REQUIRES: id != 0 and there is none.
  char* Insert(uint64_t id);
  // visit(record), in any order.
  template <class Visit>
  void ForEachRecord(const Visit& visit) const {
    for (uint64_t number = 0; number < index_.end(); ++number) {
      if (index_.IsUsed(number)) visit(Record(number));
    }
  }
  // All numbers of records are below it; a record keeps its number.
  uint64_t end_number() const { return index_.end(); }
  uint64_t NumberOf(const char* record) const {
    // A multiple of the stride, so that its odd factor divides by multiplying.
    return (static_cast<uint64_t>(record - records_.data()) >> std::countr_zero(stride_)) * odd_inverse_;
  }
  // The number of each id's record, or IdIndex::kNone, of which it returns how many there are.
  size_t FindNumbers(absl::Span<const uint64_t> ids, uint64_t* numbers) const;
  // visit(i, record or null) for each number, in order, while the memory of those that follow is on its way: `bytes` of a record from
  // `offset` on. The visit of IdIndex::kNone, which is null, may Insert. Compiled for the widest vectors (vectorise.h),
  // the visit included, which is copied, but for what it calls out of line. `visits_fetch`: visits ask for memory ahead of their own.
  template <class Visit>
  void ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, const Visit& visit, bool visits_fetch = false);
  // Copies `bytes` of each number's record, from `offset` on, to `rows`, in few instructions a record: that of numbers[i] to place i, or
  // positions[i] if there are any. REQUIRES: no IdIndex::kNone among the numbers.
  void CopyPresent(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                   absl::Span<const uint32_t> positions = {}) const;
  // Whether memory is fetched into the first cache, as is best on this processor. On their way there lines from memory hold one of its few
  // buffers, and visits wait for a free one. A core of Intel's of 2024 has 16: there a gather of 10M rows took a quarter longer than with
  // lines fetched into the second cache alone. One of AMD's Zen 5 takes a quarter longer with these.
  static bool FetchesNear() { return fetches_near; }
  // For tests of what other processors do. Before other threads have a store.
  static void SetFetchesNear(bool near) { fetches_near = near; }

 private:
  static constexpr size_t kCacheLine = 64;
  static bool fetches_near;
  static const size_t near_bytes_ahead;

  size_t FindBlock(absl::Span<const uint64_t> ids, uint64_t* numbers) const;  // of Away::kMaxIds at most
  // CopyPresent with copy(target, source), for which fetch(source) of some that follow asks for memory.
  template <class Fetch, class Copy>
  void CopyEach(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows, absl::Span<const uint32_t> positions,
                const Fetch& fetch, const Copy& copy) const;
  template <int kCache, size_t kLines>
  void CopyLines(absl::Span<const uint64_t> numbers, size_t offset, char* rows, absl::Span<const uint32_t> positions) const;
  template <int kCache>
  void CopyInto(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows, absl::Span<const uint32_t> positions) const;
  static size_t RecordsAhead(bool near, size_t bytes) { return near ? std::clamp<size_t>(near_bytes_ahead / bytes, 8, 64) : 64; }
  char* Record(uint64_t number) const { return number == IdIndex::kNone ? nullptr : records_.data() + number * stride_; }

  const size_t stride_;
  const uint64_t odd_inverse_;  // of the stride without its factors 2, modulo 2^64
  IdIndex index_;
  GrowingMemory records_;
};

template <class Visit>
void RowStore::ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, const Visit& visit, bool visits_fetch) {
  const bool near = FetchesNear();
  kernels::Vectorised([=, this, lines = RecordPrefetch(stride_, offset, bytes)](auto) {
    const auto fetch = [&](uint64_t number) __attribute__((always_inline)) {
      const char* const from = records_.data() + (number == IdIndex::kNone ? 0 : number * stride_) + offset;
      if (near) lines.Into<RecordPrefetch::kFirstCache>(from);
      else lines.Into<RecordPrefetch::kSecondCache>(from);
    };
    // Some at a time: where each fetch waits for a walk of pages, those in straight succession wait together. Into the first cache fewer
    // where they share its room with what visits fetch.
    const size_t ahead = RecordsAhead(near, bytes), run = near && visits_fetch ? 8 : 32;
    size_t fetched = size() == 0 ? numbers.size() : 0;  // an empty store has no memory to fetch
    const auto fetch_to = [&](size_t end) __attribute__((always_inline)) {
      for (end = std::min(end, numbers.size()); fetched < end; ++fetched) fetch(numbers[fetched]);
    };
    fetch_to(ahead);
    for (size_t i = 0; i < numbers.size();) {
      fetch_to(i + ahead + run);
      for (const size_t end = std::min(i + run, numbers.size()); i < end; ++i) visit(i, Record(numbers[i]));
    }
  });
}

}  // namespace tandem::ps
