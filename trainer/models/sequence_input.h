// A batch of users' sequences for a recommender, and a loss over sampled items.
// Thread rule: that of the context.
#pragma once

#include "trainer/nn/layers.h"

namespace tandem::models {

// A packed batch. Item numbers are places in the table of item rows given beside the batch.
struct SequenceInput {
  nn::PackedRows rows;
  Tensor inputs;     // i64 [T]
  Tensor targets;    // i64 [T]; training
  Tensor negatives;  // i64 [T], one for each target, or [N], shared by all targets; training

  SequenceInput To(Device device, Stream& stream) const;
};

// Targets and the negatives that they share, as places in a table of items.
struct SampledTargets {
  Tensor targets;    // i64 [T]
  Tensor negatives;  // i64 [N]
  // [N, 1], of the states' type: minus the logarithm of how often the negative was expected to be
  // drawn. Added to the negative's scores, so that frequent draws do not count more (log-Q
  // correction: Bengio and Senecal 2008). Undefined: 0.
  Tensor correction = {};
};

// The summed cross entropy of each target among the shared negatives. Scores are products of
// `states` [T, dim] and rows of `items` [n, dim].
Variable SampledSoftmaxSum(Context& context, const Variable& states, const Variable& items,
                           const SampledTargets& sampled);

// The row of each sample's last item, [samples, dim]. REQUIRES: no sample is empty.
Tensor LastRows(Context& context, const Variable& rows, const nn::PackedRows& places);

}  // namespace tandem::models
