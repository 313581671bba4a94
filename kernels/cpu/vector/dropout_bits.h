// The dropout mask of a run of consecutive elements: a bit per kept element, 64 at a time. Inline
// bodies for Vectorised(); kSet is the argument of its loop.
// Thread rule: one thread per object.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/philox_lanes.h"

namespace tandem::kernels {

// A bit for each element of sixteen blocks. Bit 0 of `lower` is the first element.
struct KeptGroup {
  uint64_t lower = 0, upper = 0;
};

#ifdef TANDEM_VECTOR_COPIES

// Each comparison gives two bits per block, one per half word. The eight halves of a block are
// neighbours in the stream.
__attribute__((target("avx512f,avx512bw,bmi2"))) inline KeptGroup KeptOfLanesAvx512(
    const uint32_t (&words)[4][kLanes], uint32_t threshold) {
  KeptGroup kept;
  for (int w = 0; w < 4; ++w) {
    const __m512i limit = _mm512_set1_epi16(static_cast<int16_t>(threshold));
    const __mmask32 halves = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(words[w]), limit);
    kept.lower |= _pdep_u64(halves, 0x0303030303030303ULL << 2 * w);
    kept.upper |= _pdep_u64(halves >> 16, 0x0303030303030303ULL << 2 * w);
  }
  return kept;
}

#endif

// words[w][l] is word w of block l.
template <InstructionSet kSet>
inline KeptGroup KeptOfLanes(const uint32_t (&words)[4][kLanes], uint32_t threshold) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512) return KeptOfLanesAvx512(words, threshold);
#endif
  const auto kept = [&](int first_block) {
    uint64_t bits = 0;
    for (int l = 0; l < kLanes / 2; ++l) {
      for (int w = 0; w < 4; ++w) {
        const uint32_t word = words[w][first_block + l];
        bits |= static_cast<uint64_t>((word & 0xffff) >= threshold) << (8 * l + 2 * w);
        bits |= static_cast<uint64_t>((word >> 16) >= threshold) << (8 * l + 2 * w + 1);
      }
    }
    return bits;
  };
  return {kept(0), kept(kLanes / 2)};
}

// Reads the stream (keys, step). `threshold` is DropThreshold's. The caller keeps the keys, outside
// of the loop.
template <InstructionSet kSet>
class KeptBits {
 public:
  KeptBits(const PhiloxKeys& keys, uint64_t step, uint32_t threshold)
      : keys_(keys), step_(step), threshold_(threshold) {}

  // Makes `element` the next element. Free if it already is.
  void Seek(uint64_t element) {
    if (element == next_) return;
    next_ = element;
    phase_ = static_cast<int>(element % 8);
    block_ = element / 8;
    has_upper_ = false;
    if (phase_ != 0) current_ = Draw();
  }

  // Bit i is set if element (next + i) is kept. Advances by 64 elements.
  // REQUIRES: Seek was called.
  uint64_t Next() {
    next_ += 64;
    if (phase_ == 0) return Draw();
    const uint64_t lower = current_ >> phase_;
    current_ = Draw();
    return lower | current_ << (64 - phase_);
  }

 private:
  uint64_t Draw() {
    has_upper_ = !has_upper_;
    if (!has_upper_) return group_.upper;
    uint32_t words[4][kLanes];
    PhiloxRun<kSet>(keys_, step_, block_, words[0], words[1], words[2], words[3]);
    block_ += kLanes;
    group_ = KeptOfLanes<kSet>(words, threshold_);
    return group_.lower;
  }

  const PhiloxKeys& keys_;
  const uint64_t step_;
  const uint32_t threshold_;
  uint64_t next_ = ~uint64_t{0}, block_ = 0;  // block_: the first block not drawn yet
  int phase_ = 0;
  uint64_t current_ = 0;  // drawn, unused from bit phase_ on
  KeptGroup group_;
  bool has_upper_ = false;  // group_.upper is unused
};

}  // namespace tandem::kernels
