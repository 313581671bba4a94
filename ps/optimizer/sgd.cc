#include "ps/optimizer/sgd.h"

#include "kernels/cpu/optimizer_rules.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseSgd::Init(float*, uint32_t) const {}

void SparseSgd::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                          double learning_rate) const {
  kernels::SgdArgs args;
  args.learning_rate = learning_rate;
  args.weight_decay = weight_decay_;
  ForEachColumn(rows, dim,
                [rule = kernels::SgdRule<float>(args)](const RowUpdate& row, uint32_t i, float g) {
                  return rule(row.weights[i], g);
                });
}

}  // namespace tandem::ps
