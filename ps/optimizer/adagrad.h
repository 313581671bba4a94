// Adagrad (Duchi et al. 2011): slot 0 is the sum of squared gradients, per column.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAdagrad : public SparseOptimizer {
 public:
  SparseAdagrad(float epsilon, float initial_accumulator)
      : epsilon_(epsilon), initial_accumulator_(initial_accumulator) {}
  int num_slots() const override { return 1; }
  void Init(const RowView& row) const override;
  void Apply(const RowView& row, const float* gradient, uint64_t step, float learning_rate,
             float scale) const override;

 private:
  const float epsilon_, initial_accumulator_;
};

}  // namespace tandem::ps
