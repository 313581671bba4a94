// FTRL-Proximal (McMahan et al., "Ad Click Prediction", KDD 2013), per column: with r = (beta +
// sqrt(n)) / learning_rate
//   n += g^2;  z += g - (r_new - r_old) * w;
//   w = argmin of z * w + r_new / 2 * w^2 + l2 / 2 * w^2 + l1 * |w|
// so |z| <= l1 gives an exact zero. Slots: z [dim], n [dim], the last learning rate. A step with
// learning rate 0 changes nothing.
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

struct FtrlOptions {
  float beta = 1, l1 = 0, l2 = 0, group_l1 = 0, initial_accumulator = 0;
};

// Differences from the paper:
// - r_old uses the learning rate of the row's last update, so a schedule rescales no weights. For a
//   new row r_old is 0, which keeps its first weights even if they are not 0.
// - A group L1 adds group_l1 * sqrt(dim) * |w| to the minimised sum, with the norm in the metric of
//   r + l2. So whole rows become zero (Yuan and Lin 2006; Yang et al., "Online Learning for Group
//   Lasso", ICML 2010).
class SparseFtrl : public SparseOptimizer {
 public:
  explicit SparseFtrl(const FtrlOptions& options) : options_(options) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{2} * dim + 1; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;

 private:
  const FtrlOptions options_;
};

}  // namespace tandem::ps
