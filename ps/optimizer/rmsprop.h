// RMSProp (Tieleman and Hinton, "Lecture 6.5", 2012). Slot 0 is a, the running mean of squared
// gradients:
//   a = rho * a + (1 - rho) * g^2;  w -= learning_rate * g / (sqrt(a) + epsilon)
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseRmsprop : public SparseOptimizer {
 public:
  SparseRmsprop(float rho, float epsilon) : rho_(rho), epsilon_(epsilon) {}
  size_t num_slot_values(uint32_t dim) const override { return dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  float slot_fading(size_t) const override { return rho_; }

 private:
  const float rho_, epsilon_;
};

}  // namespace tandem::ps
