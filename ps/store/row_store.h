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
  // of line. `visits_fetch`: visits prefetch memory of their own.
  template <class Visit>
  void ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes,
                     const Visit& visit, bool visits_fetch = false);
  // Copies `bytes` from `offset` on of each number's record to `rows`, in few instructions a
  // record. The record of numbers[i] goes to place i, or to place positions[i] if there are
  // positions.
  // REQUIRES: no number is IdIndex::kNone.
  void CopyPresent(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                   absl::Span<const uint32_t> positions = {}) const;
  // True if memory is prefetched into the first cache, where this processor is faster that way.
  // Each line in flight to the first cache holds one of the cache's few buffers, and visits wait
  // for a free buffer. An Intel core of 2024 has 16 buffers. On that core, prefetching into the
  // first cache made a gather of 10M rows a quarter slower. On AMD Zen 5, prefetching into the
  // second cache makes the gather a quarter slower.
  static bool FetchesNear() { return fetches_near; }
  // Lets tests run the code for other processors. Call before other threads have a store.
  static void SetFetchesNear(bool near) { fetches_near = near; }

 private:
  static constexpr size_t kCacheLine = 64;
  static bool fetches_near;
  static const size_t near_bytes_ahead;

  // Finds at most Away::kMaxIds ids.
  size_t FindBlock(absl::Span<const uint64_t> ids, uint64_t* numbers) const;
  // CopyPresent with copy(target, source). fetch(source) prefetches records ahead.
  template <class Fetch, class Copy>
  void CopyEach(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                absl::Span<const uint32_t> positions, const Fetch& fetch, const Copy& copy) const;
  template <int kCache, size_t kLines>
  void CopyLines(absl::Span<const uint64_t> numbers, size_t offset, char* rows,
                 absl::Span<const uint32_t> positions) const;
  template <int kCache>
  void CopyInto(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                absl::Span<const uint32_t> positions) const;
  static size_t RecordsAhead(bool near, size_t bytes) {
    return near ? std::clamp<size_t>(near_bytes_ahead / bytes, 8, 64) : 64;
  }
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
                             const Visit& visit, bool visits_fetch) {
  const bool near = FetchesNear();
  kernels::Vectorised([=, this, lines = RecordPrefetch(stride_, offset, bytes)](auto) {
    const auto fetch = [&](uint64_t number) __attribute__((always_inline)) {
      const char* const from =
          records_.data() + (number == IdIndex::kNone ? 0 : number * stride_) + offset;
      if (near)
        lines.Into<RecordPrefetch::kFirstCache>(from);
      else
        lines.Into<RecordPrefetch::kSecondCache>(from);
    };
    // Prefetches a run at a time: where each prefetch waits for a page walk, adjacent prefetches
    // wait together. Runs into the first cache are shorter if visits prefetch too, because both
    // share the cache's room.
    const size_t ahead = RecordsAhead(near, bytes), run = near && visits_fetch ? 8 : 32;
    size_t fetched = size() == 0 ? numbers.size() : 0;  // an empty store has no memory to prefetch
    const auto fetch_to = [&](size_t end) __attribute__((always_inline)) {
      for (end = std::min(end, numbers.size()); fetched < end; ++fetched) fetch(numbers[fetched]);
    };
    fetch_to(ahead);
    for (size_t i = 0; i < numbers.size();) {
      fetch_to(i + ahead + run);
      for (const size_t end = std::min(i + run, numbers.size()); i < end; ++i)
        visit(i, Record(numbers[i]));
    }
  });
}

}  // namespace tandem::ps
