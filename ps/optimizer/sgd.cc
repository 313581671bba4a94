#include "ps/optimizer/sgd.h"

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseSgd::Init(float*, uint32_t) const {}

void SparseSgd::Apply(float* weights, float*, const float* gradient, uint32_t dim, uint64_t, double learning_rate,
                      float scale) const {
  kernels::SgdArgs args;
  args.learning_rate = learning_rate;
  args.weight_decay = weight_decay_;
  args.gradient_scale = scale;
  kernels::SgdUpdate<float>(weights, gradient, dim, args);
}

}  // namespace tandem::ps
