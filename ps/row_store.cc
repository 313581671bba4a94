#include "ps/row_store.h"

#include <cstring>

#include "kernels/base/check.h"

namespace tandem::ps {

namespace {

// Few ids of large records are away from home then, and the index is small beside the records all the same.
uint64_t MaxOfLine(size_t stride) { return stride >= 256 ? 5 : 7; }

// Newton's iteration, from the three bits that an odd number and its inverse share: each doubles them.
uint64_t InverseOfOdd(uint64_t odd) {
  uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

}  // namespace

RowStore::RowStore(uint64_t salt, size_t stride)
    : stride_(stride), odd_inverse_(InverseOfOdd(stride >> std::countr_zero(stride))), index_(salt, MaxOfLine(stride)) {
  TANDEM_CHECK_GE(stride, sizeof(uint64_t));
}

char* RowStore::Insert(uint64_t id) {
  const uint64_t number = index_.Insert(id);
  records_.Grow(record_bytes());
  char* const record = Record(number);
  std::memcpy(record, &id, sizeof(id));
  return record;
}

void RowStore::FindNumbers(absl::Span<const uint64_t> ids, uint64_t* numbers) const {
  kernels::Vectorised([=, this](auto set) {
    constexpr kernels::InstructionSet kSet = decltype(set)::value;
    constexpr size_t kSize = IdIndex::Batch::kSize;
    IdIndex::Batch batch;
    uint64_t* next = numbers;
    for (size_t first = 0; first < ids.size(); first += kSize) {
      index_.Begin(ids.subspan(first, kSize), batch);
      LookAtAll<kSet>(batch);
      index_.Collect(batch);
      index_.Resolve<kSet>(batch);
      next = std::copy_n(batch.numbers, batch.count, next);
    }
  });
}

}  // namespace tandem::ps
