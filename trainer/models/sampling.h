// Draws a token from a model's logits: softmax with a temperature over the top_k best, of these the nucleus of mass top_p
// (Holtzman et al. 2020). A pure function, so the same key and step give the same token; callable from any thread.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/base/random.h"

namespace tandem::models {

struct SamplingOptions {
  double temperature = 1;  // 0: always the best
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // the fewest best tokens that together have this probability
};

// `step` numbers the draws of a text. Equal logits stand in the order of their tokens; NaN is never drawn unless there is
// nothing else. REQUIRES: at least one logit, temperature and top_k not negative.
int64_t SampleToken(absl::Span<const float> logits, const SamplingOptions& options, RandomKey key, uint64_t step);

}  // namespace tandem::models
