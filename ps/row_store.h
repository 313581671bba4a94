// Records of equal size found by a 64-bit id (IdIndex), in one array that grows without being copied.
// Thread rule: one thread at a time. Records move when the store grows: a pointer is good until the next Insert.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

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

  __attribute__((always_inline)) void FetchRecord(uint64_t number, size_t offset, size_t bytes) const {
    const uintptr_t record = reinterpret_cast<uintptr_t>(records_.data()) + (number == IdIndex::kNone ? 0 : number * stride_);
    const uintptr_t end = record + offset + bytes;
    for (uintptr_t at = (record + offset) & ~(kCacheLine - 1); at < end; at += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const void*>(at));
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

// Five blocks of ids are under way, each a stage behind the next: their lines of the index are fetched, looked at, looked at once more
// for the few ids away from home; their records are fetched, and visited. What a block asks for it needs a block's time later, and
// memory is asked for evenly, between visits: a burst would wait for itself.
template <class Visit>
void RowStore::ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit) {
  kernels::Vectorised([=, this, &visit](auto set) {
    constexpr kernels::InstructionSet kSet = decltype(set)::value;
    constexpr size_t kSize = IdIndex::Block::kSize, kStages = 5;
    IdIndex::Block blocks[kStages];
    const size_t stride = stride_, num_blocks = (ids.size() + kSize - 1) / kSize;
    size_t next = 0;  // to be visited
    for (size_t round = 0; round < num_blocks + kStages - 1; ++round) {
      const auto behind = [&](size_t stages) -> IdIndex::Block& { return blocks[(round + kStages - stages) % kStages]; };
      IdIndex::Block &first = behind(0), &last = behind(4), &before_last = behind(3);
      index_.Begin(ids.subspan(std::min(round * kSize, ids.size()), kSize), first);
      index_.Look<kSet>(behind(2));
      index_.Resolve<kSet>(before_last);
      const size_t size = index_.size();
      for (size_t i = 0; i < kSize; ++i) {
        if (i < before_last.count) FetchRecord(before_last.numbers[i], offset, bytes);
        if (i < first.count) IdIndex::FetchHome(first, i);
        if (i < last.count) visit(next++, last.numbers[i] == IdIndex::kNone ? nullptr : records_.data() + last.numbers[i] * stride);
      }
      if (index_.size() == size) continue;
      index_.Locate(first);
      index_.Locate(behind(1));
    }
  });
}

}  // namespace tandem::ps
