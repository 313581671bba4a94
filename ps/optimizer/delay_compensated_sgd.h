// Delay-compensated SGD (Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay
// Compensation", ICML 2017):
//   w -= learning_rate * (g + lambda * g * g * (w - shown))
// g was computed at the weights `shown`; g * g stands for the diagonal of the Hessian. Slot 0 is
// `shown`: the row's weights at the last pull by a training step, of any trainer. A gradient from
// an older pull is compensated only from the last pull on. In BSP nothing happens between a row's
// pull and its update, so the rule is SGD.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseDelayCompensatedSgd : public SparseOptimizer {
 public:
  explicit SparseDelayCompensatedSgd(float lambda) : lambda_(lambda) {}
  size_t num_slot_values(uint32_t dim) const override { return dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  bool remembers_shown() const override { return true; }
  void Shown(const float* weights, float* slots, uint32_t dim) const override;

 private:
  const float lambda_;
};

}  // namespace tandem::ps
