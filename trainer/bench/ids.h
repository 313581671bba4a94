// Draws the ids that the benches look up: 1 to `rows`, uniformly or by Zipf's law.
// Thread rule: a value of one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/random.h"

namespace tandem::bench {

enum class IdDistribution { UNIFORM, ZIPF };  // ZIPF: the k-th most frequent id has odds k^-1.05

class IdSource {
 public:
  // Sources with the same arguments draw the same ids.
  IdSource(uint64_t rows, IdDistribution distribution, uint64_t stream);

  uint64_t Next(uint64_t batch);

 private:
  const uint64_t rows_;
  const RandomKey key_;
  uint64_t next_ = 0;
  std::vector<double> cumulative_;  // by rank; empty: uniform
};

}  // namespace tandem::bench
