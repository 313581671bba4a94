// Draws a token from a model's logits: softmax with a temperature over the top_k best, and of these
// the nucleus of mass top_p (Holtzman et al. 2020). The same key and step give the same token.
// Thread rule: a pure function; any thread.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/base/random.h"

namespace tandem::models {

struct SamplingOptions {
  double temperature = 1;  // 0: always the best
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // the fewest best tokens that together reach this probability
};

// `step` numbers the draws of a text. Equal logits are ordered by their tokens. NaN is drawn only
// if all logits are NaN.
// REQUIRES: at least one logit; temperature and top_k are not negative.
int64_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options, RandomKey key,
                    uint64_t step);

}  // namespace tandem::models
