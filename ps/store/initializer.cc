#include "ps/store/initializer.h"

#include <algorithm>

#include "kernels/base/random.h"

namespace tandem::ps {

void InitializeWeights(uint64_t table_seed, float stddev, uint64_t id, float* weights,
                       uint32_t dim) {
  if (stddev == 0) {
    std::fill_n(weights, dim, 0.0f);
    return;
  }
  const RandomKey key{table_seed, id};
  for (uint32_t column = 0; column < dim; ++column) {
    weights[column] =
        static_cast<float>(static_cast<double>(stddev) * RandomNormal(key, 0, column));
  }
}

}  // namespace tandem::ps
