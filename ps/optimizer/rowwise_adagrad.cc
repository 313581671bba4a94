#include "ps/optimizer/rowwise_adagrad.h"

#include <cmath>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::ps {

void SparseRowwiseAdagrad::Init(float* slots, uint32_t) const { *slots = initial_accumulator_; }

void SparseRowwiseAdagrad::Apply(float* weights, float* slots, const float* gradient, uint32_t dim, uint64_t,
                                 double learning_rate, float scale) const {
  kernels::Vectorised([&] {
    const float squares = kernels::LaneSum<float>(dim, [=](int64_t i) {
      const float g = gradient[i] * scale;
      return g * g;
    });
    *slots += squares / static_cast<float>(dim);
    const float rate = static_cast<float>(learning_rate) / (std::sqrt(*slots) + epsilon_);
    for (uint32_t i = 0; i < dim; ++i) weights[i] -= rate * (gradient[i] * scale);
  });
}

}  // namespace tandem::ps
