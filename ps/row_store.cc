#include "ps/row_store.h"

#include <cstring>

#include "kernels/base/check.h"

namespace tandem::ps {

namespace {

// Few ids of large records are away from home then, and the index is small beside the records all the same.
uint64_t MaxOfLine(size_t stride) { return stride >= 256 ? 5 : 7; }

}  // namespace

RowStore::RowStore(uint64_t salt, size_t stride) : stride_(stride), index_(salt, MaxOfLine(stride)) {
  TANDEM_CHECK_GE(stride, sizeof(uint64_t));
}

char* RowStore::Insert(uint64_t id) {
  const uint64_t number = index_.Insert(id);
  records_.Grow(record_bytes());
  char* const record = Record(number);
  std::memcpy(record, &id, sizeof(id));
  return record;
}

}  // namespace tandem::ps
