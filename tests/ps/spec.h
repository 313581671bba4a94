// Table specifications and ids that the tests of this folder share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/random.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

inline TableSpec MakeTableSpec(uint32_t number, uint32_t dim, int optimizer = SPARSE_SGD) {
  TableSpec spec;
  spec.set_name("table" + std::to_string(number));
  spec.set_number(number);
  spec.set_dim(dim);
  spec.set_optimizer(static_cast<tandem::SparseOptimizer>(optimizer));
  spec.set_beta1(0.9f);
  spec.set_beta2(0.999f);
  spec.set_epsilon(1e-8f);
  spec.set_initial_accumulator(0.1f);
  spec.set_momentum(0.9f);
  spec.set_rho(0.95f);
  spec.set_beta(1);
  spec.set_l1(0.01f);
  spec.set_l2(0.02f);
  spec.set_group_l1(0.01f);
  spec.set_delay_compensation(0.5f);
  if (optimizer == SPARSE_ADAMW) spec.set_weight_decay(0.1f);
  spec.set_init_stddev(0.05f);
  spec.set_seed(77 + number);
  return spec;
}

// Returns `count` distinct ids, none 0, a function of `seed`. About one in two comes from a small
// set, so that calls share rows.
inline std::vector<uint64_t> MakeIds(uint64_t seed, size_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; ids.size() < count; ++i) {
    const uint64_t drawn = Fmix64(seed * 1000003 + i);
    const uint64_t id = i % 2 == 0 ? 1 + drawn % (4 * count) : drawn | 1;
    bool seen = false;
    for (uint64_t other : ids) seen |= other == id;
    if (!seen) ids.push_back(id);
  }
  return ids;
}

// Values in (-1, 1), a function of `seed`.
inline std::vector<float> MakeValues(uint64_t seed, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 2 * UnitFloat(RandomBits({seed, 5}, 0, i)) - 1;
  return values;
}

}  // namespace tandem::ps
