#include "trainer/bench/ids.h"

#include <algorithm>
#include <cmath>

namespace tandem::bench {

namespace {

constexpr double kZipfExponent = 1.05;
// Spreads the ranks of a Zipf distribution over the ids. Prime, so every id has one rank.
constexpr uint64_t kRankStride = 2654435761;

}  // namespace

IdSource::IdSource(uint64_t rows, IdDistribution distribution, uint64_t stream)
    : rows_(rows), key_{1, stream} {
  if (distribution == IdDistribution::UNIFORM) return;
  double sum = 0;
  for (uint64_t rank = 0; rank < rows_; ++rank) {
    cumulative_.push_back(sum += std::pow(static_cast<double>(rank + 1), -kZipfExponent));
  }
}

uint64_t IdSource::Next(uint64_t batch) {
  if (cumulative_.empty()) return 1 + RandomBelow(key_, batch, next_++, rows_);
  const double unit =
      static_cast<double>(RandomBelow(key_, batch, next_++, uint64_t{1} << 53)) * 0x1p-53;
  const auto found =
      std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, unit * cumulative_.back());
  return 1 + static_cast<uint64_t>(found - cumulative_.begin()) * kRankStride % rows_;
}

}  // namespace tandem::bench
