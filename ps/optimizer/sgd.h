// Plain gradient descent: w -= learning_rate * gradient. No state.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseSgd : public SparseOptimizer {
 public:
  int num_slots() const override { return 0; }
  void Init(const RowView& row) const override;
  void Apply(const RowView& row, const float* gradient, uint64_t step, float learning_rate,
             float scale) const override;
};

}  // namespace tandem::ps
