// Adam (Kingma and Ba 2015) on the rows that got a gradient: slots 0 and 1 are the first and second moments. Bias
// correction uses the job's global step, not a count per row, so two trainers give the bits of one.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseAdam : public SparseOptimizer {
 public:
  SparseAdam(double beta1, double beta2, double epsilon) : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{2} * dim; }
  void Init(float* slots, uint32_t dim) const override;
  void Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step, double learning_rate,
             float scale) const override;

 private:
  const double beta1_, beta2_, epsilon_;
};

}  // namespace tandem::ps
