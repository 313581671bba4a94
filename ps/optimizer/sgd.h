// Plain gradient descent without state: decoupled weight decay, then w -= learning_rate * gradient.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseSgd : public SparseOptimizer {
 public:
  explicit SparseSgd(double weight_decay) : weight_decay_(weight_decay) {}
  size_t num_slot_values(uint32_t) const override { return 0; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  double weight_decay() const override { return weight_decay_; }

 private:
  const double weight_decay_;
};

}  // namespace tandem::ps
