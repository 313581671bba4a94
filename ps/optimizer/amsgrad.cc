#include "ps/optimizer/amsgrad.h"

#include <algorithm>

#include "kernels/optimizer.h"
#include "ps/optimizer/adam.h"
#include "ps/optimizer/rest.h"

namespace tandem::ps {

void SparseAmsgrad::Init(float* slots, uint32_t dim) const { std::fill_n(slots, num_slot_values(dim), 0.0f); }

void SparseAmsgrad::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t step,
                          double learning_rate, float scale) const {
  kernels::AdamArgs args;
  args.learning_rate = learning_rate;
  args.beta1 = beta1_;
  args.beta2 = beta2_;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  args.step = step;
  kernels::AmsgradUpdate<float>(weights, slots, slots + dim, slots + size_t{2} * dim, gradient, dim, args);
}

bool SparseAmsgrad::AtRest(const float* weights, const float* slots, uint32_t dim, double learning_rate) const {
  return TooSmallToMove(weights, slots, dim, LongestAdamStep(learning_rate, beta1_, epsilon_));
}

}  // namespace tandem::ps
