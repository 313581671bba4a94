#include "ps/store/row_store.h"

#include <algorithm>
#include <cstring>
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

}  // namespace

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

}  // namespace tandem::ps
