#include "ps/optimizer/sgd.h"

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseSgd::Init(const RowView&) const {}

void SparseSgd::Apply(const RowView& row, const float* gradient, uint64_t, float learning_rate, float scale) const {
  kernels::SgdArgs args;
  args.learning_rate = learning_rate;
  args.gradient_scale = scale;
  kernels::SgdUpdate<float>(row.weights, gradient, row.dim, args);
}

}  // namespace tandem::ps
