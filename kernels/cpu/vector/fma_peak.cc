#include "kernels/cpu/vector/fma_peak.h"

#include <cstdint>

#include "kernels/cpu/vector/vectorise.h"

namespace tandem::kernels {

namespace {

constexpr int kLanesPerChain = 16, kChains = 12;  // enough to hide the latency of two units

}  // namespace

void RunFmaPeak() {
  volatile float sink = 0;
  float total = 0;
  Vectorised([&total] {
    typedef float Vector __attribute__((vector_size(64)));
    static_assert(sizeof(Vector) == kLanesPerChain * sizeof(float));
    Vector chain[kChains];
    for (int c = 0; c < kChains; ++c) chain[c] = Vector{} + static_cast<float>(c);
    const Vector factor = Vector{} + 0.999f, addend = Vector{} + 1e-3f;
    for (int64_t i = 0; i < (1 << 16); ++i) {
      for (int c = 0; c < kChains; ++c) {
        for (int l = 0; l < kLanesPerChain; ++l)
          chain[c][l] = __builtin_fmaf(chain[c][l], factor[l], addend[l]);
      }
    }
    for (int c = 0; c < kChains; ++c) total += chain[c][0];
  });
  sink = total;
  (void)sink;
}

}  // namespace tandem::kernels
