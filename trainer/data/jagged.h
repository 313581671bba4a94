// Rows of different lengths in one flat array. One type serves histories, multi-hot features and
// token streams, because all of them have this layout.
// Invariant: offsets[0] == 0, offsets never decrease, offsets.back() == values.size().
// Thread rule: a plain value; many threads may read, one may write.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::data {

struct Jagged {
  std::vector<int64_t> offsets{0};
  std::vector<uint64_t> values;

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }

  int64_t row_size(int64_t i) const { return offsets[i + 1] - offsets[i]; }

  absl::Span<const uint64_t> row(int64_t i) const {
    return absl::MakeConstSpan(values).subspan(offsets[i], row_size(i));
  }

  void Append(absl::Span<const uint64_t> row) {
    values.insert(values.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int64_t>(values.size()));
  }
};

}  // namespace tandem::data
