#include "ps/optimizer/momentum.h"

#include <algorithm>

#include "kernels/cpu/optimizer_rules.h"
#include "ps/optimizer/rest.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseMomentum::Init(float* slots, uint32_t dim) const { std::fill_n(slots, dim, 0.0f); }

void SparseMomentum::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                               double learning_rate) const {
  kernels::MomentumArgs args;
  args.learning_rate = learning_rate;
  args.momentum = momentum_;
  args.nesterov = nesterov_;
  ForEachColumn(
      rows, dim,
      [rule = kernels::MomentumRule<float>(args)](const RowUpdate& row, uint32_t i, float g) {
        return rule(row.weights[i], row.slots[i], g);
      });
}

bool SparseMomentum::AtRest(const float* weights, const float* slots, uint32_t dim,
                            double learning_rate) const {
  return TooSmallToMove(weights, slots, dim, learning_rate);
}

}  // namespace tandem::ps
