// The f64 reference of the loss over a linear layer's outputs, and what a half of the loss is.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/loss.h"

namespace tandem::kernels {

// A half of the loss over classes of which some are here (LinearClassesArgs).
struct LossHalf {
  int64_t first_class = 0;
  ArrayView log_sum = {}, target_logit = {};  // results of the first half
  ArrayView given = {};                       // the second half's sums over all classes

  bool is_first() const { return !log_sum.empty(); }
};

// The whole loss with one product, one loss and two products; or `half` of it, null: the whole.
void LinearCrossEntropyReference(const LinearCrossEntropyArgs& args, Stream& stream,
                                 const LossHalf* half);

}  // namespace tandem::kernels
