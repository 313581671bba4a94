#include "ps/store/row_store.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "kernels/base/check.h"

namespace tandem::ps {

namespace {

// With 5 ids a line few ids of large records lie away from home. The index is small beside large
// records all the same.
uint64_t MaxOfLine(size_t stride) { return stride >= 256 ? 5 : 7; }

// Newton's iteration. An odd number and its inverse agree in three bits; each iteration doubles the
// number of correct bits.
uint64_t InverseOfOdd(uint64_t odd) {
  uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

bool IsOfAmd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

// The part of the first cache that visits leave free: of 48 KB (AMD Zen 5) and of 32 KB (Zen 3). On
// Zen 3 a gather of Zipf ids with 10 KB ahead takes a tenth longer.
size_t NearBytesAhead() {
  const bool large = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;
  return large ? 10 << 10 : 4 << 10;
}

}  // namespace

bool RowStore::fetches_near = IsOfAmd();
const size_t RowStore::near_bytes_ahead = NearBytesAhead();

RowStore::RowStore(uint64_t salt, size_t stride)
    : stride_(stride),
      odd_inverse_(InverseOfOdd(stride >> std::countr_zero(stride))),
      index_(salt, MaxOfLine(stride)) {
  TANDEM_CHECK_GE(stride, sizeof(uint64_t));
}

char* RowStore::Insert(uint64_t id) {
  const uint64_t number = index_.Insert(id);
  records_.Grow(record_bytes());
  char* const record = Record(number);
  std::memcpy(record, &id, sizeof(id));
  return record;
}

size_t RowStore::FindNumbers(absl::Span<const uint64_t> ids, uint64_t* numbers) const {
  constexpr size_t kMost = IdIndex::Away::kMaxIds;
  size_t num_absent = 0;
  for (; !ids.empty(); ids.remove_prefix(std::min(kMost, ids.size())), numbers += kMost) {
    num_absent += FindBlock(ids.subspan(0, kMost), numbers);
  }
  return num_absent;
}

// Keeps memory requests even: some batches begin while lines of earlier batches are in flight.
size_t RowStore::FindBlock(absl::Span<const uint64_t> ids, uint64_t* numbers) const {
  size_t num_absent = 0;
  kernels::Vectorised([=, this, &num_absent](auto set) {
    constexpr kernels::InstructionSet kSet = decltype(set)::value;
    constexpr size_t kSize = IdIndex::Batch::kSize, kBatchesAhead = 4;
    IdIndex::Batch batches[kBatchesAhead];
    IdIndex::Away away;
    const size_t num_batches = (ids.size() + kSize - 1) / kSize;
    size_t absent = 0;
    for (size_t i = 0; i < num_batches + kBatchesAhead; ++i) {
      IdIndex::Batch& batch = batches[i % kBatchesAhead];
      if (i >= kBatchesAhead)
        absent += index_.Look<kSet>(batch, (i - kBatchesAhead) * kSize, numbers, away);
      if (i < num_batches) index_.Begin(ids.subspan(i * kSize, kSize), batch);
    }
    num_absent = absent + index_.Resolve<kSet>(ids, away, numbers);
  });
  return num_absent;
}

template <class Fetch, class Copy>
void RowStore::CopyEach(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                        absl::Span<const uint32_t> positions, const Fetch& fetch,
                        const Copy& copy) const {
  const size_t ahead = std::min(RecordsAhead(FetchesNear(), bytes), numbers.size()),
               whole = numbers.size() - ahead;
  const auto each = [ =, first = records_.data() + offset, stride = stride_ ](auto place_of)
      __attribute__((always_inline)) {
    for (size_t i = 0; i < ahead; ++i) fetch(first + numbers[i] * stride);
    for (size_t i = 0; i < whole; ++i) {
      fetch(first + numbers[i + ahead] * stride);
      copy(rows + place_of(i) * bytes, first + numbers[i] * stride);
    }
    for (size_t i = whole; i < numbers.size(); ++i)
      copy(rows + place_of(i) * bytes, first + numbers[i] * stride);
  };
  if (positions.empty())
    kernels::Vectorised([=] { each([](size_t i) { return i; }); });
  else
    kernels::Vectorised([=] { each([=](size_t i) { return size_t{positions[i]}; }); });
}

template <int kCache, size_t kLines>
void RowStore::CopyLines(absl::Span<const uint64_t> numbers, size_t offset, char* rows,
                         absl::Span<const uint32_t> positions) const {
  CopyEach(
      numbers, offset, kLines * kCacheLine, rows, positions,
      [](const char* from) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (size_t line = 0; line < kLines; ++line)
          __builtin_prefetch(from + line * kCacheLine, 0, kCache);
      },
      [](char* target, const char* source)
          __attribute__((always_inline)) { std::memcpy(target, source, kLines * kCacheLine); });
}

template <int kCache>
void RowStore::CopyInto(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes, char* rows,
                        absl::Span<const uint32_t> positions) const {
  if (stride_ % kCacheLine == 0 && offset % kCacheLine == 0) {
    switch (bytes) {
      case 1 * kCacheLine:
        return CopyLines<kCache, 1>(numbers, offset, rows, positions);
      case 2 * kCacheLine:
        return CopyLines<kCache, 2>(numbers, offset, rows, positions);
      case 4 * kCacheLine:
        return CopyLines<kCache, 4>(numbers, offset, rows, positions);
      case 8 * kCacheLine:
        return CopyLines<kCache, 8>(numbers, offset, rows, positions);
    }
  }
  CopyEach(
      numbers, offset, bytes, rows, positions,
      [lines = RecordPrefetch(stride_, offset, bytes)](const char* from)
          __attribute__((always_inline)) { lines.Into<kCache>(from); },
      [=](char* target, const char* source)
          __attribute__((always_inline)) { CopyBytes(target, source, bytes); });
}

// The processor waits for a line in flight together with lines of instructions behind the wait. The
// fewer instructions lie between, the more lines it sees. So the usual sizes have loops of their
// own. With these loops, rows of 64 floats, many of them in some cache, take an eighth less time
// than with the general loop.
void RowStore::CopyPresent(absl::Span<const uint64_t> numbers, size_t offset, size_t bytes,
                           char* rows, absl::Span<const uint32_t> positions) const {
  if (numbers.empty()) return;
  if (FetchesNear())
    CopyInto<RecordPrefetch::kFirstCache>(numbers, offset, bytes, rows, positions);
  else
    CopyInto<RecordPrefetch::kSecondCache>(numbers, offset, bytes, rows, positions);
}

}  // namespace tandem::ps
