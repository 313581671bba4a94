#include "ps/optimizer/adadelta.h"

#include <algorithm>

#include "kernels/cpu/optimizer_rules.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseAdadelta::Init(float* slots, uint32_t dim) const {
  std::fill_n(slots, num_slot_values(dim), 0.0f);
}

void SparseAdadelta::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                               double learning_rate) const {
  kernels::AdadeltaArgs args;
  args.learning_rate = learning_rate;
  args.rho = rho_;
  args.epsilon = epsilon_;
  ForEachColumn(
      rows, dim,
      [dim, rule = kernels::AdadeltaRule<float>(args)](const RowUpdate& row, uint32_t i, float g) {
        return rule(row.weights[i], row.slots[i], row.slots[dim + i], g);
      });
}

}  // namespace tandem::ps
