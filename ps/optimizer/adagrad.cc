#include "ps/optimizer/adagrad.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseAdagrad::Init(const RowView& row) const { std::fill_n(row.slot(0), row.dim, initial_accumulator_); }

void SparseAdagrad::Apply(const RowView& row, const float* gradient, uint64_t, float learning_rate,
                          float scale) const {
  kernels::AdagradArgs args;
  args.learning_rate = learning_rate;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  kernels::AdagradUpdate<float>(row.weights, row.slot(0), gradient, row.dim, args);
}

}  // namespace tandem::ps
