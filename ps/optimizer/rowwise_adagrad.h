// Row-wise Adagrad (Gupta et al., "Training Recommender Systems at Scale", 2018, arXiv 1706.07881;
// also in PyTorch's FBGEMM). One accumulator for a row, so a row's state is one number instead of
// dim:
//   a += mean over columns of g^2;  w -= learning_rate * g / (sqrt(a) + epsilon)
// Thread rule: see sparse_optimizer.h.
#pragma once

#include "ps/optimizer/sparse_optimizer.h"

namespace tandem::ps {

class SparseRowwiseAdagrad : public SparseOptimizer {
 public:
  SparseRowwiseAdagrad(float epsilon, float initial_accumulator)
      : epsilon_(epsilon), initial_accumulator_(initial_accumulator) {}
  size_t num_slot_values(uint32_t) const override { return 1; }
  void Init(float* slots, uint32_t dim) const override;
  void ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                 double learning_rate) const override;

 private:
  const float epsilon_, initial_accumulator_;
};

}  // namespace tandem::ps
