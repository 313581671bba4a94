#include "ps/optimizer/delay_compensated_sgd.h"

#include <algorithm>

#include "kernels/cpu/vectorise.h"

namespace tandem::ps {

void SparseDelayCompensatedSgd::Init(float* slots, uint32_t dim) const { std::fill_n(slots, dim, 0.0f); }

void SparseDelayCompensatedSgd::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t,
                                      double learning_rate, float scale) const {
  const float lambda = lambda_, rate = static_cast<float>(learning_rate);
  kernels::Vectorised([=] {
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i) {
      const float g = gradient[i] * scale;
      weights[i] -= rate * (g + lambda * g * g * (weights[i] - slots[i]));
    }
  });
}

void SparseDelayCompensatedSgd::Shown(const float* weights, float* slots, uint32_t dim) const {
  std::copy_n(weights, dim, slots);
}

}  // namespace tandem::ps
