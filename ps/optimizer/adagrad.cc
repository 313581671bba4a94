#include "ps/optimizer/adagrad.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace tandem::ps {

void SparseAdagrad::Init(float* slots, uint32_t dim) const { std::fill_n(slots, dim, initial_accumulator_); }

void SparseAdagrad::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t, double learning_rate,
                          float scale) const {
  kernels::AdagradArgs args;
  args.learning_rate = learning_rate;
  args.epsilon = epsilon_;
  args.gradient_scale = scale;
  kernels::AdagradUpdate<float>(weights, slots, gradient, dim, args);
}

}  // namespace tandem::ps
