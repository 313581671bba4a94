#include "ps/optimizer/adagrad.h"

#include <algorithm>

#include "kernels/cpu/optimizer_rules.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseAdagrad::Init(float* slots, uint32_t dim) const {
  std::fill_n(slots, dim, initial_accumulator_);
}

void SparseAdagrad::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                              double learning_rate) const {
  kernels::AdagradArgs args;
  args.learning_rate = learning_rate;
  args.epsilon = epsilon_;
  ForEachColumn(
      rows, dim,
      [rule = kernels::AdagradRule<float>(args)](const RowUpdate& row, uint32_t i, float g) {
        return rule(row.weights[i], row.slots[i], g);
      });
}

}  // namespace tandem::ps
