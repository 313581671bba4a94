// The random bits of stochastic rounding, for many columns at a time. These bodies are inline for
// use in Vectorised().
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/base/random.h"
#include "kernels/cpu/vector/philox_lanes.h"
#include "kernels/cpu/vector/vectorise.h"

namespace tandem::ps {

inline constexpr uint32_t kRoundingColumns = 64;

// Eight Philox blocks side by side. `words` holds words 0 and 1 of each block, `more_words` holds
// words 2 and 3.
struct RoundingBlocks {
  typedef uint64_t Blocks __attribute__((vector_size(8 * sizeof(uint64_t))));
  Blocks words, more_words;

  static RoundingBlocks Make(uint64_t folded_key, uint64_t step, uint64_t first) {
    const Blocks low = Blocks{} + 0xffffffffu;
    Blocks c0 = Blocks{0, 1, 2, 3, 4, 5, 6, 7} + first, c1{}, c2 = Blocks{} + (step & 0xffffffff),
           c3 = Blocks{} + (step >> 32);
    uint64_t k0 = folded_key & 0xffffffff, k1 = folded_key >> 32;
    for (int round = 0; round < 10; ++round) {
      const Blocks p0 = (c0 & low) * 0xD2511F53u, p1 = (c2 & low) * 0xCD9E8D57u;
      c0 = p1 >> 32 ^ c1 ^ k0;
      c2 = p0 >> 32 ^ c3 ^ k1;
      c1 = p1 & low;
      c3 = p0 & low;
      k0 = (k0 + 0x9E3779B9) & 0xffffffff;
      k1 = (k1 + 0xBB67AE85) & 0xffffffff;
    }
    return {c0 | c1 << 32, c2 | c3 << 32};
  }
#ifdef TANDEM_VECTOR_COPIES
  __attribute__((target("avx512f"))) static RoundingBlocks MakeAvx512(
      const kernels::PhiloxKeys& keys, uint64_t step, uint64_t first) {
    const Blocks low = Blocks{} + 0xffffffffu;
    kernels::PhiloxVectors block;
    block.Start(kernels::PhiloxVectors::From(first), step);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) block.Round(keys.k0[round], keys.k1[round]);
    return {(block.c0 & low) | block.c1 << 32, (block.c2 & low) | block.c3 << 32};
  }
#endif
};

#ifdef TANDEM_VECTOR_COPIES

// Four Philox blocks side by side, written by hand for AVX2. The compiler, g++ 12, would multiply
// all 64 bits of each lane. The compiler would also extract the words of wider vectors one by one.
// Words live in lower halves. The upper halves hold leftovers of products and are never read.
struct RoundingQuads {
  typedef uint64_t Quad __attribute__((vector_size(4 * sizeof(uint64_t))));
  Quad c0, c1, c2, c3;

  __attribute__((target("avx2"))) static Quad Multiply(uint32_t factor, Quad x) {
    return reinterpret_cast<Quad>(
        _mm256_mul_epu32(_mm256_set1_epi64x(factor), reinterpret_cast<__m256i>(x)));
  }
  // Moves each upper half to the lower half.
  __attribute__((target("avx2"))) static Quad Upper(Quad x) {
    return reinterpret_cast<Quad>(
        _mm256_shuffle_epi32(reinterpret_cast<__m256i>(x), _MM_SHUFFLE(3, 3, 1, 1)));
  }
  // Returns a's lower halves, with b's lower halves above them.
  __attribute__((target("avx2"))) static Quad Join(Quad a, Quad b) {
    constexpr int kUpperHalves = 0b10101010;
    return reinterpret_cast<Quad>(_mm256_blend_epi32(
        reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b << 32), kUpperHalves));
  }

  __attribute__((target("avx2"))) void Start(uint64_t first, uint64_t step) {
    c0 = Quad{0, 1, 2, 3} + first;
    c1 = c0 >> 32;
    c2 = Quad{} + step;
    c3 = c2 >> 32;
  }
  __attribute__((target("avx2"))) void Round(uint64_t k0, uint64_t k1) {
    const Quad p0 = Multiply(0xD2511F53, c0), p1 = Multiply(0xCD9E8D57, c2);
    c0 = Upper(p1) ^ c1 ^ (Quad{} + k0);
    c2 = Upper(p0) ^ c3 ^ (Quad{} + k1);
    c1 = p1;
    c3 = p0;
  }
  // Writes each block's four words side by side: the bits of eight columns per block.
  __attribute__((target("avx2"))) void Store(uint16_t* bits) const {
    const Quad words = Join(c0, c1), more_words = Join(c2, c3);
    const Quad pairs[2] = {__builtin_shufflevector(words, more_words, 0, 4, 1, 5),
                           __builtin_shufflevector(words, more_words, 2, 6, 3, 7)};
    std::memcpy(bits, pairs, sizeof(pairs));
  }

  // Writes the bits of kRoundingColumns columns. Two groups of four blocks run interleaved, so that
  // each hides the latency of the other.
  __attribute__((target("avx2"))) static void StoreColumns(const kernels::PhiloxKeys& keys,
                                                           uint64_t step, uint64_t first,
                                                           uint16_t* bits) {
    RoundingQuads a, b;
    a.Start(first, step);
    b.Start(first + 4, step);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      a.Round(keys.k0[round], keys.k1[round]);
      b.Round(keys.k0[round], keys.k1[round]);
    }
    a.Store(bits);
    b.Store(bits + kRoundingColumns / 2);
  }
};

#endif

// Writes 16 random bits for each of `count` columns from `first` on: the bits of PhiloxBlock, eight
// columns per block.
// REQUIRES: `first` is a multiple of 8; `bits` has room for `count` rounded up to kRoundingColumns.
template <kernels::InstructionSet kSet>
inline void RoundingBits(uint64_t folded_key, uint64_t step, uint32_t first, uint32_t count,
                         uint16_t* bits) {
  using Blocks = RoundingBlocks::Blocks;
#ifdef TANDEM_VECTOR_COPIES
  const kernels::PhiloxKeys keys = kernels::RoundKeys(folded_key);
#endif
  for (uint32_t done = 0; done < count; done += kRoundingColumns, bits += kRoundingColumns) {
#ifdef TANDEM_VECTOR_COPIES
    if constexpr (kSet == kernels::InstructionSet::AVX2) {
      RoundingQuads::StoreColumns(keys, step, (first + done) / 8, bits);
      continue;
    }
#endif
    RoundingBlocks made;
#ifdef TANDEM_VECTOR_COPIES
    if constexpr (kSet == kernels::InstructionSet::AVX512)
      made = RoundingBlocks::MakeAvx512(keys, step, (first + done) / 8);
    else
#endif
      made = RoundingBlocks::Make(folded_key, step, (first + done) / 8);
    // Stores each block's words side by side, as wide as the next load. A load that spans several
    // stores waits for all of them.
    const Blocks pairs[2] = {
        __builtin_shufflevector(made.words, made.more_words, 0, 8, 1, 9, 2, 10, 3, 11),
        __builtin_shufflevector(made.words, made.more_words, 4, 12, 5, 13, 6, 14, 7, 15)};
    std::memcpy(bits, pairs, sizeof(pairs));
  }
}

}  // namespace tandem::ps
