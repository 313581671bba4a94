// FTRL-Proximal (McMahan et al., "Ad Click Prediction", KDD 2013), per column: with r = (beta + sqrt(n)) / learning_rate
//   n += g^2;  z += g - (r_new - r_old) * w;  w = the least of z * w + r_new / 2 * w^2 + l2 / 2 * w^2 + l1 * |w|
// so that |z| <= l1 makes an exact zero. Beyond the paper: r_old is that of the learning rate that the row's last update had, so a
// schedule rescales no weights; it is 0 for a new row, whose first weights, which need not be 0, are thereby kept. A group L1 adds
// group_l1 * sqrt(dim) * |w| to what is minimised, the norm taken in the metric of r + l2, so that whole rows become zero (Yuan and
// Lin 2006; Yang et al., "Online Learning for Group Lasso", ICML 2010). Slots: z [dim], n [dim], the last learning rate.
// A step with learning rate 0 changes nothing.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

struct FtrlOptions {
  float beta = 1, l1 = 0, l2 = 0, group_l1 = 0, initial_accumulator = 0;
};

class SparseFtrl : public SparseOptimizer {
 public:
  explicit SparseFtrl(const FtrlOptions& options) : options_(options) {}
  size_t num_slot_values(uint32_t dim) const override { return size_t{2} * dim + 1; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step, double learning_rate) const override;

 private:
  const FtrlOptions options_;
};

}  // namespace tandem::ps
