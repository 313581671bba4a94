#include "ps/optimizer/delay_compensated_sgd.h"

#include <algorithm>

#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseDelayCompensatedSgd::Init(float* slots, uint32_t dim) const {
  std::fill_n(slots, dim, 0.0f);
}

void SparseDelayCompensatedSgd::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                                          double learning_rate) const {
  ForEachColumn(rows, dim,
                [lambda = lambda_, rate = static_cast<float>(learning_rate)](const RowUpdate& row,
                                                                             uint32_t i, float g) {
                  const float w = row.weights[i];
                  return w - rate * (g + lambda * g * g * (w - row.slots[i]));
                });
}

void SparseDelayCompensatedSgd::Shown(const float* weights, float* slots, uint32_t dim) const {
  std::copy_n(weights, dim, slots);
}

}  // namespace tandem::ps
