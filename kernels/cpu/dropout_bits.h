// Which of a run of consecutive elements a dropout keeps, as bits: one per element of the stream of dropout_mask.h, 64 at a time.
// Inline bodies for Vectorised(); kSet is the argument of its loop.
#pragma once

#include <cstdint>

#include "kernels/cpu/philox_lanes.h"

namespace tandem::kernels {

#ifdef TANDEM_VECTOR_COPIES

// Comparisons leave a bit per block; the four words of a block are neighbours in the stream.
__attribute__((target("avx512f,bmi2"))) inline uint64_t KeptOfLanesAvx512(const uint32_t (&words)[4][kLanes], uint32_t limit) {
  uint64_t kept = 0;
  for (int w = 0; w < 4; ++w) {
    const __mmask16 lanes = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(words[w]), _mm512_set1_epi32(static_cast<int>(limit)));
    kept |= _pdep_u64(lanes, 0x1111111111111111ULL << w);
  }
  return kept;
}

#endif

// Bit 4 l + w: word w of block l is at least `limit`.
template <InstructionSet kSet>
inline uint64_t KeptOfLanes(const uint32_t (&words)[4][kLanes], uint32_t limit) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512) return KeptOfLanesAvx512(words, limit);
#endif
  uint64_t kept = 0;
  for (int l = 0; l < kLanes; ++l) {
    for (int w = 0; w < 4; ++w) kept |= static_cast<uint64_t>(words[w][l] >= limit) << (4 * l + w);
  }
  return kept;
}

// Reads the stream (keys, step) from element `first` on; `threshold` as DropThreshold gives it. The keys lie outside of the loop.
template <InstructionSet kSet>
class KeptBits {
 public:
  KeptBits(const PhiloxKeys& keys, uint64_t step, int32_t threshold, uint64_t first)
      : keys_(keys),
        step_(step),
        limit_(static_cast<uint32_t>(threshold) << 8),
        block_(first / 4),
        phase_(static_cast<int>(first % 4)),
        group_(phase_ == 0 ? 0 : Draw()) {}

  // Bit i: the next element but i is kept.
  uint64_t Next() {
    if (phase_ == 0) return Draw();
    const uint64_t lower = group_ >> phase_;
    group_ = Draw();
    return lower | group_ << (64 - phase_);
  }

 private:
  uint64_t Draw() {
    uint32_t words[4][kLanes];
    PhiloxRun<kSet>(keys_, step_, block_, words[0], words[1], words[2], words[3]);
    block_ += kLanes;
    return KeptOfLanes<kSet>(words, limit_);
  }

  const PhiloxKeys& keys_;
  const uint64_t step_;
  const uint32_t limit_;
  uint64_t block_;
  const int phase_;
  uint64_t group_;  // drawn and not yet used from bit phase_ on
};

}  // namespace tandem::kernels
