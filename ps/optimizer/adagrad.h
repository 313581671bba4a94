// Adagrad (Duchi et al. 2011). Slot 0 is the sum of squared gradients, per column.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAdagrad : public SparseOptimizer {
 public:
  SparseAdagrad(float epsilon, float initial_accumulator)
      : epsilon_(epsilon), initial_accumulator_(initial_accumulator) {}
  size_t num_slot_values(uint32_t dim) const override { return dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;

 private:
  const float epsilon_, initial_accumulator_;
};

}  // namespace tandem::ps
