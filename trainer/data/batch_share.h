// Which samples of a global batch belong to which replica and part. Every sampler makes this one
// cut. So replicas and parts of gradient accumulation together hold each sample once, in order.
// Thread rule: pure functions; any thread.
#pragma once

#include <cstdint>

#include "kernels/base/check.h"

namespace tandem::data {

struct BatchShare {
  int64_t begin = 0, end = 0;  // samples of the global batch; equal: none
  int64_t size() const { return end - begin; }
};

// Replica r of R gets samples floor(r n / R) .. floor((r + 1) n / R) of the batch's n. Part p of P
// (gradient accumulation) cuts that share again: floor((r P + p) n / (R P)) and so on.
inline BatchShare ShareOf(int64_t num_samples, int replica, int num_replicas, int part,
                          int num_parts) {
  TANDEM_CHECK(0 <= replica && replica < num_replicas)
      << " replica " << replica << " of " << num_replicas;
  TANDEM_CHECK(0 <= part && part < num_parts) << " part " << part << " of " << num_parts;
  const int64_t share = int64_t{replica} * num_parts + part,
                num_shares = int64_t{num_replicas} * num_parts;
  return {num_samples * share / num_shares, num_samples * (share + 1) / num_shares};
}

}  // namespace tandem::data
