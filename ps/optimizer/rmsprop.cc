#include "ps/optimizer/rmsprop.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseRmsprop::Init(float* slots, uint32_t dim) const { std::fill_n(slots, dim, 0.0f); }

void SparseRmsprop::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t, double learning_rate,
                          float scale) const {
  kernels::RmspropArgs args;
  args.learning_rate = learning_rate;
  args.rho = rho_;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  kernels::RmspropUpdate<float>(weights, slots, gradient, dim, args);
}

}  // namespace tandem::ps
