#include "ps/optimizer/rowwise_adagrad.h"

#include <cmath>

#include "kernels/cpu/vector/lanes.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseRowwiseAdagrad::Init(float* slots, uint32_t) const { *slots = initial_accumulator_; }

void SparseRowwiseAdagrad::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                                     double learning_rate) const {
  ForEachRow(rows, [=, whole_rate = static_cast<float>(learning_rate),
                    epsilon = epsilon_](const RowUpdate& row) {
    const float* const gradient = row.gradient;
    const float scale = row.scale;
    const float squares = kernels::LaneSum<float>(dim, [=](int64_t i) {
      const float g = gradient[i] * scale;
      return g * g;
    });
    *row.slots += squares / static_cast<float>(dim);
    const float rate = whole_rate / (std::sqrt(*row.slots) + epsilon);
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i) row.weights[i] -= rate * (gradient[i] * scale);
  });
}

}  // namespace tandem::ps
