#include "ps/optimizer/momentum.h"

#include <algorithm>

#include "kernels/optimizer.h"
#include "ps/optimizer/rest.h"

namespace tandem::ps {

void SparseMomentum::Init(float* slots, uint32_t dim) const { std::fill_n(slots, dim, 0.0f); }

void SparseMomentum::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t, double learning_rate,
                           float scale) const {
  kernels::MomentumArgs args;
  args.learning_rate = learning_rate;
  args.momentum = momentum_;
  args.gradient_scale = scale;
  args.nesterov = nesterov_;
  kernels::MomentumUpdate<float>(weights, slots, gradient, dim, args);
}

bool SparseMomentum::AtRest(const float* weights, const float* slots, uint32_t dim, double learning_rate) const {
  return TooSmallToMove(weights, slots, dim, learning_rate);
}

}  // namespace tandem::ps
