#include "ps/optimizer/adadelta.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseAdadelta::Init(float* slots, uint32_t dim) const { std::fill_n(slots, num_slot_values(dim), 0.0f); }

void SparseAdadelta::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t, double learning_rate,
                           float scale) const {
  kernels::AdadeltaArgs args;
  args.learning_rate = learning_rate;
  args.rho = rho_;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  kernels::AdadeltaUpdate<float>(weights, slots, slots + dim, gradient, dim, args);
}

}  // namespace tandem::ps
