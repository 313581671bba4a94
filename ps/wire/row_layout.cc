#include "ps/wire/row_layout.h"

#include <cstring>

#include "kernels/base/params_hash.h"

namespace tandem::ps {

absl::uint128 HashRow(std::string_view table, const RowLayout& layout, uint64_t id,
                      const char* values) {
  const uint64_t owner = RowOwner(table, id);
  absl::uint128 sum = 0;
  ForEachStored(layout.storage(), values, layout.dim(),
                [&](uint32_t column, uint32_t bits) { sum += HashScalar(owner, 0, column, bits); });
  for (size_t i = 0; i < layout.num_slot_values(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + layout.weight_bytes() + i * sizeof(float), sizeof bits);
    sum += HashScalar(owner, static_cast<uint32_t>(1 + i / layout.dim()), i % layout.dim(), bits);
  }
  return sum;
}

}  // namespace tandem::ps
