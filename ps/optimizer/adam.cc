#include "ps/optimizer/adam.h"

#include <algorithm>

#include "kernels/cpu/optimizer_rules.h"
#include "ps/optimizer/rest.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {

void SparseAdam::Init(float* slots, uint32_t dim) const {
  std::fill_n(slots, num_slot_values(dim), 0.0f);
}

void SparseAdam::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t step,
                           double learning_rate) const {
  kernels::AdamArgs args;
  args.learning_rate = learning_rate;
  args.beta1 = beta1_;
  args.beta2 = beta2_;
  args.epsilon = epsilon_;
  args.weight_decay = weight_decay_;
  args.step = step;
  ForEachColumn(
      rows, dim,
      [dim, rule = kernels::AdamRule<float>(args)](const RowUpdate& row, uint32_t i, float g) {
        return rule(row.weights[i], row.slots[i], row.slots[dim + i], g);
      });
}

bool SparseAdam::AtRest(const float* weights, const float* slots, uint32_t dim,
                        double learning_rate) const {
  return TooSmallToMove(weights, slots, dim, LongestAdamStep(learning_rate, beta1_, epsilon_));
}

}  // namespace tandem::ps
