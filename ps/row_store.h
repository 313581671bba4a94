// Records of equal size found by a 64-bit id (IdIndex), in one array that grows without being copied.
// Thread rule: one thread at a time. Records move when the store grows: a pointer is good until the next Insert.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "kernels/base/growing_memory.h"
#include "kernels/cpu/vectorise.h"
#include "ps/id_index.h"

namespace tandem::ps {

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
  // The number of each id's record, or IdIndex::kNone.
  void FindNumbers(absl::Span<const uint64_t> ids, uint64_t* numbers) const;
  // visit(i, record or null) for each number, in order, while the memory of those that follow is on its way: `bytes` of a record from
  // `offset` on. The visit of IdIndex::kNone, which is null, may Insert. Compiled as ForEach is.
  template <class Visit>
  void ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, const Visit& visit);
  // visit(i, record or null) for each id, in order, while the memory of those that follow is on its way: `bytes` of a record from
  // `offset` on. The visit of an absent id may Insert it, if ids are distinct. Compiled for the widest vectors (vectorise.h), the
  // visit included, but for what it calls out of line.
  template <class Visit>
  void ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit);

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kLinesAhead = 32;  // of the index

  __attribute__((always_inline)) void FetchRecord(uint64_t number, size_t offset, size_t bytes) const {
    const uintptr_t record = reinterpret_cast<uintptr_t>(records_.data()) + (number == IdIndex::kNone ? 0 : number * stride_);
    const uintptr_t last = (record + offset + bytes - 1) & ~(kCacheLine - 1);
    uintptr_t at = (record + offset) & ~(kCacheLine - 1);
    // Four without a branch, though it be the last line again: cheaper than to find out.
    for (int i = 0; i < 4; ++i, at += kCacheLine) __builtin_prefetch(reinterpret_cast<const void*>(std::min(at, last)));
    for (; at <= last; at += kCacheLine) __builtin_prefetch(reinterpret_cast<const void*>(at));
  }
  template <kernels::InstructionSet kSet>
  void LookAtAll(IdIndex::Batch& batch) const {
    for (size_t i = 0; i < std::min(batch.count, kLinesAhead); ++i) index_.FetchHome(batch, i);
    for (size_t i = 0; i < batch.count; ++i) {
      if (i + kLinesAhead < batch.count) index_.FetchHome(batch, i + kLinesAhead);
      index_.Look<kSet>(batch, i);
    }
  }
  char* Record(uint64_t number) const { return number == IdIndex::kNone ? nullptr : records_.data() + number * stride_; }

  const size_t stride_;
  const uint64_t odd_inverse_;  // of the stride without its factors 2, modulo 2^64
  IdIndex index_;
  GrowingMemory records_;
};

template <class Visit>
void RowStore::ForEachNumber(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, const Visit& visit) {
  kernels::Vectorised([=, this, &visit](auto) {
    constexpr size_t kRecordsAhead = 20;  // some 5 KB of records that are 256 bytes
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (i + kRecordsAhead < numbers.size()) FetchRecord(numbers[i + kRecordsAhead], offset, bytes);
      visit(i, Record(numbers[i]));
    }
  });
}

// While the rows of one batch are visited, in step with that the lines of the index of the next one are fetched and looked at:
// memory is asked for evenly, between visits; a burst would wait for itself. A batch is long enough for what is done between
// batches to cost little, and short enough to stay in the second cache. A row that a visit inserts may move lines that were looked
// at: all are then looked at anew.
template <class Visit>
void RowStore::ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit) {
  kernels::Vectorised([=, this, &visit](auto set) {
    constexpr kernels::InstructionSet kSet = decltype(set)::value;
    constexpr size_t kSize = IdIndex::Batch::kSize, kRowsAhead = 32;
    IdIndex::Batch batches[2];
    const size_t stride = stride_;
    IdIndex::Batch *now = &batches[0], *then = &batches[1];
    index_.Begin(ids.subspan(0, kSize), *now);
    LookAtAll<kSet>(*now);
    index_.Collect(*now);
    for (size_t first = 0; first < ids.size(); first += kSize, std::swap(now, then)) {
      IdIndex::Batch &batch = *now, &next = *then;
      index_.Begin(ids.subspan(std::min(first + kSize, ids.size()), kSize), next);
      index_.Resolve<kSet>(batch);
      for (size_t i = 0; i < std::min(batch.count, kRowsAhead); ++i) FetchRecord(batch.numbers[i], offset, bytes);
      for (size_t i = 0; i < std::min(next.count, kLinesAhead); ++i) index_.FetchHome(next, i);
      const size_t size = index_.size();
      for (size_t i = 0; i < batch.count; ++i) {
        if (i + kLinesAhead < next.count) index_.FetchHome(next, i + kLinesAhead);
        if (i < next.count) index_.Look<kSet>(next, i);
        if (i + kRowsAhead < batch.count) FetchRecord(batch.numbers[i + kRowsAhead], offset, bytes);
        const uint64_t number = batch.numbers[i];
        visit(first + i, number == IdIndex::kNone ? nullptr : records_.data() + number * stride);
      }
      if (index_.size() != size) {
        index_.Locate(next);
        LookAtAll<kSet>(next);
      }
      index_.Collect(next);
    }
  });
}

}  // namespace tandem::ps
