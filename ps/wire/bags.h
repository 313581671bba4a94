// Bags of ids whose rows are added up to one row each, as a trainer gives them (Bags) and as servers pool them.
// Thread rule: values and pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::ps {

// What the weighted sum of a bag's rows is divided by: 1, how many there are, or the root of that. An empty bag is 0.
enum class Pooling { SUM, MEAN, SQRT_N };
inline double PoolingFactor(Pooling pooling, size_t count) {
  if (pooling == Pooling::SUM || count == 0) return 1;
  return 1 / (pooling == Pooling::MEAN ? static_cast<double>(count) : std::sqrt(static_cast<double>(count)));
}

// Bags of rows of one table: bag b has ids[offsets[b]] to ids[offsets[b + 1] - 1], none 0, any as often as it likes.
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
// to[b] = from[b] times the pooling factor of bag b; the same array will do.
void ScalePooled(const Bags& bags, size_t dim, const float* from, float* to);

}  // namespace tandem::ps
