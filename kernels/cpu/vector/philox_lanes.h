// Philox for sixteen blocks at a time: the words of kernels/base/random.h, in loops that vectorise.
// Inline bodies for Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/base/random.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::kernels {

// Vector instructions per sixteen elements for dropout's random bits: 60 for 64 elements.
inline constexpr int kDropoutBitsInstructions = 15;

// The keys of the ten rounds. Keys in memory feed vector instructions at no cost; keys in registers
// cost a shuffle each.
struct PhiloxKeys {
  uint64_t k0[10], k1[10];  // 32 bits each
};

inline PhiloxKeys RoundKeys(uint64_t folded_key) {
  PhiloxKeys keys;
  uint32_t k0 = static_cast<uint32_t>(folded_key), k1 = static_cast<uint32_t>(folded_key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    keys.k0[round] = k0;
    keys.k1[round] = k1;
  }
  return keys;
}

inline uint64_t FoldedKey(const PhiloxKeys& keys) { return keys.k0[0] | keys.k1[0] << 32; }

#ifdef TANDEM_VECTOR_COPIES

// Written by hand for AVX-512: g++ 12 does not find the product of the lower halves of 64-bit
// lanes. The full 64-bit product costs three times as much. Words lie in lower halves. Products
// leave rubbish in the upper halves, which nobody reads.
struct PhiloxVectors {
  typedef uint64_t Wide __attribute__((vector_size(64)));
  typedef uint32_t Words __attribute__((vector_size(64)));
  Wide c0, c1, c2, c3;

  __attribute__((target("avx512f"))) static Wide Multiply(uint32_t factor, Wide x) {
    return reinterpret_cast<Wide>(
        _mm512_maskz_mul_epu32(0xff, _mm512_set1_epi64(factor), reinterpret_cast<__m512i>(x)));
  }

  __attribute__((target("avx512f"))) static Wide Load(const uint64_t* blocks) {
    Wide loaded;
    std::memcpy(&loaded, blocks, sizeof(loaded));
    return loaded;
  }
  __attribute__((target("avx512f"))) static Wide From(uint64_t first) {
    return Wide{0, 1, 2, 3, 4, 5, 6, 7} + first;
  }

  __attribute__((target("avx512f"))) void Start(Wide blocks, uint64_t step) {
    c0 = blocks;
    c1 = c0 >> 32;
    c2 = Wide{} + step;
    c3 = c2 >> 32;
  }

  // Moves upper halves to lower halves. Uses a shuffle, because a shift would wait for the
  // multiplier's port.
  __attribute__((target("avx512f"))) static Wide Upper(Wide x) {
    return reinterpret_cast<Wide>(
        _mm512_maskz_shuffle_epi32(0xffff, reinterpret_cast<__m512i>(x), _MM_PERM_DDBB));
  }

  __attribute__((target("avx512f"))) void Round(uint64_t k0, uint64_t k1) {
    const Wide p0 = Multiply(0xD2511F53, c0), p1 = Multiply(0xCD9E8D57, c2);
    c0 = Upper(p1) ^ c1 ^ (Wide{} + k0);
    c2 = Upper(p0) ^ c3 ^ (Wide{} + k1);
    c1 = p1;
    c3 = p0;
  }

  // The lower halves of a's lanes, then the lower halves of b's lanes.
  __attribute__((target("avx512f"))) static Words Join(Wide a, Wide b) {
    return __builtin_shufflevector(reinterpret_cast<Words>(a), reinterpret_cast<Words>(b), 0, 2, 4,
                                   6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  }
  __attribute__((target("avx512f"))) static void Store(Words words, uint32_t* to) {
    std::memcpy(to, &words, sizeof(words));
  }
  // Writes two rows: the lower 16 bits of the words shifted up, then the words themselves.
  __attribute__((target("avx512f"))) static void StoreHalves(Words words, uint32_t* to) {
    Store(words << 16, to);
    Store(words, to + kLanes);
  }
};

// Ten rounds for two vectors of eight blocks. Interleaving the two hides their latencies.
__attribute__((target("avx512f"))) inline void PhiloxRounds(const PhiloxKeys& keys,
                                                            PhiloxVectors& a, PhiloxVectors& b) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    a.Round(keys.k0[round], keys.k1[round]);
    b.Round(keys.k0[round], keys.k1[round]);
  }
}

__attribute__((target("avx512f"))) inline void PhiloxRunAvx512(const PhiloxKeys& keys,
                                                               uint64_t step, uint64_t first,
                                                               uint32_t* w0, uint32_t* w1,
                                                               uint32_t* w2, uint32_t* w3) {
  PhiloxVectors a, b;
  a.Start(PhiloxVectors::From(first), step);
  b.Start(PhiloxVectors::From(first + 8), step);
  PhiloxRounds(keys, a, b);
  PhiloxVectors::Store(PhiloxVectors::Join(a.c0, b.c0), w0);
  PhiloxVectors::Store(PhiloxVectors::Join(a.c1, b.c1), w1);
  PhiloxVectors::Store(PhiloxVectors::Join(a.c2, b.c2), w2);
  PhiloxVectors::Store(PhiloxVectors::Join(a.c3, b.c3), w3);
}

// Blocks stay in registers. Reloading blocks from an array in every step took half of the time.
__attribute__((target("avx512f"))) inline void PhiloxHalvesAvx512(const PhiloxKeys& keys,
                                                                  uint64_t step,
                                                                  const uint64_t* blocks,
                                                                  int64_t begin, int64_t count,
                                                                  uint32_t* rows) {
  PhiloxVectors::Wide lower = PhiloxVectors::Load(blocks) + static_cast<uint64_t>(begin);
  PhiloxVectors::Wide upper = PhiloxVectors::Load(blocks + 8) + static_cast<uint64_t>(begin);
  for (int64_t j = 0; j < count; ++j, lower += 1, upper += 1, rows += 8 * kLanes) {
    PhiloxVectors a, b;
    a.Start(lower, step);
    b.Start(upper, step);
    PhiloxRounds(keys, a, b);
    PhiloxVectors::StoreHalves(PhiloxVectors::Join(a.c0, b.c0), rows);
    PhiloxVectors::StoreHalves(PhiloxVectors::Join(a.c1, b.c1), rows + 2 * kLanes);
    PhiloxVectors::StoreHalves(PhiloxVectors::Join(a.c2, b.c2), rows + 4 * kLanes);
    PhiloxVectors::StoreHalves(PhiloxVectors::Join(a.c3, b.c3), rows + 6 * kLanes);
  }
}

#endif

// w0[l], w1[l], w2[l], w3[l] = the four words of block first + l of the stream (keys, step), for l
// in [0, kLanes).
template <InstructionSet kSet>
inline void PhiloxRun(const PhiloxKeys& keys, uint64_t step, uint64_t first, uint32_t* w0,
                      uint32_t* w1, uint32_t* w2, uint32_t* w3) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512)
    return PhiloxRunAvx512(keys, step, first, w0, w1, w2, w3);
#endif
  const uint64_t folded_key = FoldedKey(keys);
  for (int l = 0; l < kLanes; ++l) {
    const Philox4 block = PhiloxBlock(folded_key, step, first + static_cast<uint64_t>(l));
    w0[l] = block[0];
    w1[l] = block[1];
    w2[l] = block[2];
    w3[l] = block[3];
  }
}

// Blocks [begin, begin + count) of sixteen runs side by side, in eight rows of kLanes words per
// block.
// Entry l of row 8 j + 2 w + h holds half h of word w, in its upper half.
// The block is blocks[l] + begin + j of the stream (keys, step). Lower halves are undefined.
template <InstructionSet kSet>
inline void PhiloxHalves(const PhiloxKeys& keys, uint64_t step, const uint64_t* blocks,
                         int64_t begin, int64_t count, uint32_t* rows) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512)
    return PhiloxHalvesAvx512(keys, step, blocks, begin, count, rows);
#endif
  const uint64_t folded_key = FoldedKey(keys);
  for (int64_t j = 0; j < count; ++j, rows += 8 * kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const Philox4 block =
          PhiloxBlock(folded_key, step, blocks[l] + static_cast<uint64_t>(begin + j));
      for (int w = 0; w < 4; ++w) {
        rows[2 * w * kLanes + l] = block[w] << 16;
        rows[(2 * w + 1) * kLanes + l] = block[w];
      }
    }
  }
}

}  // namespace tandem::kernels
