// AMSGrad (Reddi et al. 2018): Adam whose divisor is the largest second moment so far, so a row's
// rates never grow again. Slots 0, 1 and 2 are the first moment, the second moment and the largest
// second moment. Bias correction is that of Adam, after the maximum.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAmsgrad : public SparseOptimizer {
 public:
  SparseAmsgrad(float beta1, float beta2, float epsilon)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{3} * dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  float slot_fading(size_t run) const override { return run == 0 ? beta1_ : run == 1 ? beta2_ : 1; }
  bool AtRest(const float* weights, const float* slots, uint32_t dim,
              double learning_rate) const override;

 private:
  const float beta1_, beta2_, epsilon_;
};

}  // namespace tandem::ps
