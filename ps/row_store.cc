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
    constexpr size_t kSize = IdIndex::Block::kSize, kStages = 4;
    IdIndex::Block blocks[kStages];
    const size_t num_blocks = (ids.size() + kSize - 1) / kSize;
    uint64_t* next = numbers;
    for (size_t round = 0; round < num_blocks + kStages - 1; ++round) {
      const auto behind = [&](size_t stages) -> IdIndex::Block& { return blocks[(round + kStages - stages) % kStages]; };
      index_.Begin(ids.subspan(std::min(round * kSize, ids.size()), kSize), behind(0));
      for (size_t i = 0; i < behind(0).count; ++i) IdIndex::FetchHome(behind(0), i);
      index_.Look<kSet>(behind(2));
      index_.Resolve<kSet>(behind(3));
      next = std::copy_n(behind(3).numbers, behind(3).count, next);
    }
  });
}

}  // namespace tandem::ps
