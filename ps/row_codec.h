// How a row's weights are stored: f32, bf16, or int8 with one f32 scale for the row (w = scale * q, |q| <= 127; the scale lies
// behind the bytes). Updates are computed in f32 and stored rounded up or down at random, with odds that keep the mean to a 65,536th
// of a unit (stochastic rounding, Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015): rounding to the nearest
// would lose every update below half a unit. The random bits are a function of (key, step, column): bits depend on neither order nor
// owner. Rows on the wire (wire_codec.h) look the same. Thread rule: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/functional/function_ref.h"
#include "kernels/base/random.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

const char* NameOf(RowStorage storage);  // "F32", "BF16", "INT8"
// Bytes of a row's weights, the scale included.
size_t StoredBytes(RowStorage storage, uint32_t dim);

// `stored` lies at any alignment; f32 is copied.
void DecodeWeights(RowStorage storage, const char* stored, uint32_t dim, float* weights);
// To the nearest, ties to even: a row's first weights.
void EncodeNearest(RowStorage storage, const float* weights, uint32_t dim, char* stored);
void EncodeStochastic(RowStorage storage, const float* weights, uint32_t dim, RandomKey key, uint64_t step, char* stored);

// 16 random bits for each of `count` columns from `first` on, for a loop compiled for vectors: PhiloxBlock's, eight blocks of eight
// columns at a time. REQUIRES: first a multiple of 8; room for count rounded up to kRoundingColumns.
inline constexpr uint32_t kRoundingColumns = 64;
inline void RoundingBits(uint64_t folded_key, uint64_t step, uint32_t first, uint32_t count, uint16_t* bits) {
  constexpr int kBlocks = 8;
  typedef uint64_t Blocks __attribute__((vector_size(sizeof(uint64_t) * kBlocks)));  // 32 bits of each
  const Blocks low = Blocks{} + 0xffffffffu;
  for (uint32_t done = 0; done < count; done += kRoundingColumns, bits += kRoundingColumns) {
    Blocks c0 = Blocks{0, 1, 2, 3, 4, 5, 6, 7} + (first + done) / 8, c1{}, c2 = Blocks{} + (step & 0xffffffff), c3 = Blocks{} + (step >> 32);
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
    const Blocks words[2] = {c0 | c1 << 32, c2 | c3 << 32};
    for (int block = 0; block < kBlocks; ++block) {
      for (int half = 0; half < 2; ++half) {
        const uint64_t four = words[half][block];
        std::memcpy(bits + block * 8 + half * 4, &four, sizeof(four));
      }
    }
  }
}

// visit(column, its stored bits), and for int8 visit(dim, the scale's bits): what params_hash is made of.
void ForEachStored(RowStorage storage, const char* stored, uint32_t dim, absl::FunctionRef<void(uint32_t, uint32_t)> visit);

}  // namespace tandem::ps
