// Adam (Kingma and Ba 2015) on the rows that got a gradient. Slots 0 and 1 are the first and second
// moments. Bias correction uses the job's global step, not a count per row, so two trainers give
// the bits of one trainer. Weight decay is decoupled: AdamW (Loshchilov and Hutter 2019).
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAdam : public SparseOptimizer {
 public:
  SparseAdam(double beta1, double beta2, double epsilon, double weight_decay)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon), weight_decay_(weight_decay) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{2} * dim; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;
  float slot_fading(size_t run) const override { return run == 0 ? beta1_ : beta2_; }
  double weight_decay() const override { return weight_decay_; }
  bool AtRest(const float* weights, const float* slots, uint32_t dim,
              double learning_rate) const override;

 private:
  const double beta1_, beta2_, epsilon_, weight_decay_;
};

// The largest change of a weight in one step per unit of first moment m. The root in the divisor is
// at least 0, and the bias correction at most 1 / (1 - beta1).
inline double LongestAdamStep(double learning_rate, double beta1, double epsilon) {
  return learning_rate / (1.0 - beta1) / epsilon;
}

}  // namespace tandem::ps
