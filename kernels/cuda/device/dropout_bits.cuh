// The dropout mask (DropoutBits of kernels/base/random.h), one block of the random stream at a
// time.
#pragma once

#include "kernels/base/random.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/plan/dropout_plan.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels::cuda {

struct DropoutStream {
  uint64_t folded_key;
  const uint64_t* step;  // in device memory
  uint32_t threshold;
  float scale;
};

inline DropoutStream DropoutStreamOf(RandomKey key, uint64_t step, float probability,
                                     Stream& stream) {
  const uint32_t threshold = DropThreshold(probability);
  return {FoldKey(key), stream.StepOnDevice(step), threshold,
          static_cast<float>(KeepScale(threshold))};
}

__device__ inline float KeepOrZero(bool kept, float x, float scale) {
  return kept ? x * scale : 0.0f;
}

// Bit e is set if dropout keeps element e of the block.
__device__ inline uint32_t KeptBits(const DropoutStream& random, uint64_t block) {
  const Philox4 words = PhiloxBlock(random.folded_key, __ldg(random.step), block);
  uint32_t kept = 0;
  TANDEM_UNROLL
  for (int w = 0; w < 4; ++w) {
    kept |= static_cast<uint32_t>((words[w] & 0xffff) >= random.threshold) << (2 * w);
    kept |= static_cast<uint32_t>((words[w] >> 16) >= random.threshold) << (2 * w + 1);
  }
  return kept;
}

}  // namespace tandem::kernels::cuda
