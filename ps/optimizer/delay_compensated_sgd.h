// Delay-compensated SGD (Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", ICML 2017):
// w -= learning_rate * (g + lambda * g * g * (w - shown)), where g was computed at `shown` and g * g stands for the Hessian's
// diagonal. Slot 0 is `shown`: the row's weights when a training step last pulled them. It is one for all trainers: a gradient that
// was computed at an older pull than the last one is compensated from that one on only. In BSP nothing lies between a row's pull
// and its update, and this is SGD.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseDelayCompensatedSgd : public SparseOptimizer {
 public:
  explicit SparseDelayCompensatedSgd(float lambda) : lambda_(lambda) {}
  size_t num_slot_values(uint32_t dim) const override { return dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step, double learning_rate) const override;
  bool remembers_shown() const override { return true; }
  void Shown(const float* weights, float* slots, uint32_t dim) const override;

 private:
  const float lambda_;
};

}  // namespace tandem::ps
