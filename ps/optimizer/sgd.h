// Plain gradient descent: w -= learning_rate * gradient. No state.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseSgd : public SparseOptimizer {
 public:
  size_t num_slot_values(uint32_t) const override { return 0; }
  void Init(float* slots, uint32_t dim) const override;
  void Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step, double learning_rate,
             float scale) const override;
};

}  // namespace tandem::ps
