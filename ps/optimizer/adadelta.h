// Adadelta (Zeiler 2012, arXiv 1212.5701): steps in the unit of the weights. Slot 0 is the running
// mean of squared gradients, slot 1 the running mean of squared changes. The learning rate
// multiplies the step; the paper's rate is 1.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAdadelta : public SparseOptimizer {
 public:
  SparseAdadelta(float rho, float epsilon) : rho_(rho), epsilon_(epsilon) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{2} * dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  float slot_fading(size_t) const override { return rho_; }

 private:
  const float rho_, epsilon_;
};

}  // namespace tandem::ps
