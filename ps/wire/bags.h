// Bags of ids: the rows of a bag are summed to one row. A trainer passes Bags, and servers pool
// them.
// Thread rule: values and pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::ps {

// The divisor of a bag's weighted sum: 1, the number of ids, or the square root of that number. An
// empty bag pools to 0.
enum class Pooling { SUM, MEAN, SQRT_N };
inline double PoolingFactor(Pooling pooling, size_t count) {
  if (pooling == Pooling::SUM || count == 0) return 1;
  return 1 / (pooling == Pooling::MEAN ? static_cast<double>(count)
                                       : std::sqrt(static_cast<double>(count)));
}

// Bags of rows of one table: bag b has ids[offsets[b]] to ids[offsets[b + 1] - 1]. No id is 0; an
// id may repeat.
struct Bags {
  uint32_t table = 0;
  Pooling pooling = Pooling::SUM;
  absl::Span<const uint64_t> ids;
  absl::Span<const uint64_t> offsets;  // bags + 1, from 0 to ids.size()
  const float* weights = nullptr;      // [ids.size()]; null: all 1

  size_t size() const { return offsets.size() - 1; }
};

// InvalidArgument if offsets do not rise from 0 to the number of ids, or an id is 0.
absl::Status CheckBags(const Bags& bags);
// to[b] = from[b] * the pooling factor of bag b. `to` may be `from`.
void ScalePooled(const Bags& bags, size_t dim, const float* from, float* to);

}  // namespace tandem::ps
