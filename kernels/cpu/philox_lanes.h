// Philox for sixteen blocks at a time: the words of kernels/base/random.h, in loops that vectorise. Inline bodies for Vectorised().
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/base/random.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::kernels {

#ifdef TANDEM_VECTOR_COPIES

// AVX-512 has a product of the lower halves of 64-bit lanes that g++ 12 does not find: it multiplies all 64 bits, for three times
// the price. So this copy is written by hand. Words live in lower halves; what products leave in the upper ones is never read.
struct PhiloxVectors {
  typedef uint64_t Wide __attribute__((vector_size(64)));
  typedef uint32_t Words __attribute__((vector_size(64)));
  Wide c0, c1, c2, c3;

  __attribute__((target("avx512f"))) static Wide Multiply(uint32_t factor, Wide x) {
    return reinterpret_cast<Wide>(
        _mm512_maskz_mul_epu32(0xff, _mm512_set1_epi64(factor), reinterpret_cast<__m512i>(x)));
  }

  __attribute__((target("avx512f"))) void Start(const uint64_t* blocks, uint64_t step) {
    std::memcpy(&c0, blocks, sizeof(c0));
    c1 = c0 >> 32;
    c2 = Wide{} + step;
    c3 = c2 >> 32;
  }

  __attribute__((target("avx512f"))) void Round(uint32_t k0, uint32_t k1) {
    const Wide p0 = Multiply(0xD2511F53, c0), p1 = Multiply(0xCD9E8D57, c2);
    c0 = (p1 >> 32) ^ c1 ^ (Wide{} + k0);
    c2 = (p0 >> 32) ^ c3 ^ (Wide{} + k1);
    c1 = p1;
    c3 = p0;
  }

  // The lower halves of a's lanes, then those of b's.
  __attribute__((target("avx512f"))) static void StoreWords(Wide a, Wide b, uint32_t* words) {
    const Words lower = __builtin_shufflevector(reinterpret_cast<Words>(a), reinterpret_cast<Words>(b), 0, 2, 4, 6, 8, 10, 12, 14,
                                                16, 18, 20, 22, 24, 26, 28, 30);
    std::memcpy(words, &lower, sizeof(lower));
  }
};

__attribute__((target("avx512f"))) inline void PhiloxLanesAvx512(uint64_t folded_key, uint64_t step, const uint64_t* blocks,
                                                                uint32_t* w0, uint32_t* w1, uint32_t* w2, uint32_t* w3) {
  PhiloxVectors a, b;
  a.Start(blocks, step);
  b.Start(blocks + 8, step);
  uint32_t k0 = static_cast<uint32_t>(folded_key), k1 = static_cast<uint32_t>(folded_key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    a.Round(k0, k1);
    b.Round(k0, k1);
  }
  PhiloxVectors::StoreWords(a.c0, b.c0, w0);
  PhiloxVectors::StoreWords(a.c1, b.c1, w1);
  PhiloxVectors::StoreWords(a.c2, b.c2, w2);
  PhiloxVectors::StoreWords(a.c3, b.c3, w3);
}

#endif

// w0[l], w1[l], w2[l], w3[l] = the four words of block blocks[l] of the stream (folded_key, step), l in [0, kLanes).
template <InstructionSet kSet>
inline void PhiloxLanes(uint64_t folded_key, uint64_t step, const uint64_t* blocks, uint32_t* w0, uint32_t* w1, uint32_t* w2,
                        uint32_t* w3) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512) return PhiloxLanesAvx512(folded_key, step, blocks, w0, w1, w2, w3);
#endif
  for (int l = 0; l < kLanes; ++l) {
    const Philox4 block = PhiloxBlock(folded_key, step, blocks[l]);
    w0[l] = block[0];
    w1[l] = block[1];
    w2[l] = block[2];
    w3[l] = block[3];
  }
}

}  // namespace tandem::kernels
