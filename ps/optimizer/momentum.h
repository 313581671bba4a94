// Momentum. Heavy ball (Polyak 1964): m = momentum * m + g; w -= learning_rate * m. Nesterov
// (Sutskever et al. 2013): w -= learning_rate * (g + momentum * m). Slot 0 is m.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseMomentum : public SparseOptimizer {
 public:
  SparseMomentum(float momentum, bool nesterov) : momentum_(momentum), nesterov_(nesterov) {}
  size_t num_slot_values(uint32_t dim) const override { return dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  float slot_fading(size_t) const override { return momentum_; }
  bool AtRest(const float* weights, const float* slots, uint32_t dim,
              double learning_rate) const override;

 private:
  const float momentum_;
  const bool nesterov_;
};

}  // namespace tandem::ps
