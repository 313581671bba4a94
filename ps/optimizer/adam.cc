#include "ps/optimizer/adam.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseAdam::Init(const RowView& row) const { std::fill_n(row.slots, size_t{2} * row.dim, 0.0f); }

void SparseAdam::Apply(const RowView& row, const float* gradient, uint64_t step, float learning_rate,
                       float scale) const {
  kernels::AdamArgs args;
  args.learning_rate = learning_rate;
  args.beta1 = beta1_;
  args.beta2 = beta2_;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  args.step = step;
  kernels::AdamUpdate<float>(row.weights, row.slot(0), row.slot(1), gradient, row.dim, args);
}

}  // namespace tandem::ps
