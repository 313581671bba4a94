// Rounds rows of f32 to bf16 in vectors, as rows and as pairs of rows. Tile products and dot
// products take one operand in pairs. Word l of a pair of rows holds both elements l: the lower
// row's in its lower half, the upper row's in its upper half. Inline bodies for Rounding().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cpu/vector/word_tiles.h"
#include "kernels/memory/storage.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::kernels {

// Rounds kLanes floats of each of two rows to bf16 (nearest, ties to even). Also computes bf16 dot
// products.
struct PlainRounding {
  static void Pairs(const float* lower, const float* upper, uint32_t* pairs) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) pairs[l] = BFloat16Pair::Of(lower[l], upper[l]).bits;
  }
  static void Rows(const float* lower, const float* upper, BFloat16* lower_row,
                   BFloat16* upper_row) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) lower_row[l] = ToBFloat16(lower[l]);
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) upper_row[l] = ToBFloat16(upper[l]);
  }
  static void RowsAndPairs(const float* lower, const float* upper, BFloat16* lower_row,
                           BFloat16* upper_row, uint32_t* pairs) {
    Rows(lower, upper, lower_row, upper_row);
    Pairs(lower, upper, pairs);
  }
  // Rounds two vectors side by side into one row.
  static void Row(const float* left, const float* right, BFloat16* row) {
    Rows(left, right, row, row + kLanes);
  }
  // sum[l] += x[2l] y[2l] + x[2l + 1] y[2l + 1].
  static void AddProducts(const BFloat16* x, const BFloat16* y, float* sum) {
    for (int l = 0; l < 2 * kLanes; ++l) sum[l / 2] += ToFloat(x[l]) * ToFloat(y[l]);
  }
};

#ifdef TANDEM_VECTOR_COPIES

#define TANDEM_BF16_TARGET \
  "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2,prfchw,prefer-vector-width=512"

// Rounds with AVX-512 BF16 instructions, which treat denormals as zeros, as the processor's bf16
// products do.
struct ProcessorRounding {
  __attribute__((target(TANDEM_BF16_TARGET))) static __m512i Both(const float* lower,
                                                                  const float* upper) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(upper), _mm512_loadu_ps(lower));
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void StorePairs(__m512i both,
                                                                     uint32_t* pairs) {
    const __m512i weave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(pairs, _mm512_permutexvar_epi16(weave, both));
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void StoreRows(__m512i both,
                                                                    BFloat16* lower_row,
                                                                    BFloat16* upper_row) {
    // Masked, because g++ 12 warns about its own header's unmasked version.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lower_row),
                        _mm512_maskz_extracti64x4_epi64(0xf, both, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(upper_row),
                        _mm512_maskz_extracti64x4_epi64(0xf, both, 1));
  }

  __attribute__((target(TANDEM_BF16_TARGET))) static void Pairs(const float* lower,
                                                                const float* upper,
                                                                uint32_t* pairs) {
    StorePairs(Both(lower, upper), pairs);
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void Rows(const float* lower,
                                                               const float* upper,
                                                               BFloat16* lower_row,
                                                               BFloat16* upper_row) {
    StoreRows(Both(lower, upper), lower_row, upper_row);
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void RowsAndPairs(const float* lower,
                                                                       const float* upper,
                                                                       BFloat16* lower_row,
                                                                       BFloat16* upper_row,
                                                                       uint32_t* pairs) {
    const __m512i both = Both(lower, upper);
    StoreRows(both, lower_row, upper_row);
    StorePairs(both, pairs);
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void Row(const float* left, const float* right,
                                                              BFloat16* row) {
    _mm512_storeu_si512(row, Both(left, right));
  }
  __attribute__((target(TANDEM_BF16_TARGET))) static void AddProducts(const BFloat16* x,
                                                                      const BFloat16* y,
                                                                      float* sum) {
    const __m512bh x_row = (__m512bh)_mm512_loadu_si512(x), y_row = (__m512bh)_mm512_loadu_si512(y);
    _mm512_storeu_ps(sum, _mm512_dpbf16_ps(_mm512_loadu_ps(sum), x_row, y_row));
  }
};

template <class Loop>
__attribute__((target(TANDEM_BF16_TARGET), flatten, noinline)) void RunAvx512Bf16(
    const Loop& loop) {
  const Loop own = loop;
  own(InstructionSetTag<InstructionSet::AVX512>{}, ProcessorRounding{});
}

#endif

// True if the processor has AVX-512 BF16, which rounds and multiplies, and the thread's limit
// (vectorise.h) allows it.
inline bool UsesAvx512Bf16() {
#ifdef TANDEM_VECTOR_COPIES
  static const bool has =
      WidestInstructionSet() == InstructionSet::AVX512 && __builtin_cpu_supports("avx512bf16");
  const InstructionSet limit = InstructionSetLimit::Current();
  return has && limit >= InstructionSet::AVX512_BF16 && limit != InstructionSet::PLAIN_TILES;
#else
  return false;
#endif
}

// Vectorised() for loops that round: calls loop(instruction set tag, rounding class).
template <class Loop>
void Rounding(const Loop& loop) {
#ifdef TANDEM_VECTOR_COPIES
  if (UsesAvx512Bf16()) return RunAvx512Bf16(loop);
#endif
  Vectorised([=](auto set) { loop(set, PlainRounding{}); });
}

// Rounds kLanes columns of f32 rows, `row` elements apart, to dense rows of pairs of rows. Rows
// from `seen` on count as zeros.
// REQUIRES: num_rows is even.
inline void RoundColumns(const float* from, int64_t row, int64_t seen, int64_t num_rows,
                         uint32_t* pairs) {
  Rounding([=](auto, auto round) {
    const float zeros[kLanes] = {};
    for (int64_t j = 0; j < num_rows; j += 2) {
      const float* lower = from + j * row;
      round.Pairs(j < seen ? lower : zeros, j + 1 < seen ? lower + row : zeros,
                  pairs + j / 2 * kLanes);
    }
  });
}

// Rounds dense f32 rows, each times `factor`, into rows `to_row` elements apart.
// REQUIRES: `columns` is a multiple of 2 kLanes.
inline void RoundRows(const float* from, int64_t rows, int64_t columns, float factor, BFloat16* to,
                      int64_t to_row) {
  Rounding([=](auto, auto round) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; c += 2 * kLanes) {
        float left[kLanes], right[kLanes];
        for (int l = 0; l < kLanes; ++l) left[l] = factor * from[r * columns + c + l];
        for (int l = 0; l < kLanes; ++l) right[l] = factor * from[r * columns + c + kLanes + l];
        round.Row(left, right, to + r * to_row + c);
      }
    }
  });
}

// Rounds columns [begin, end) of f32 [num_rows, row], column c times factors[c]. Column `begin`
// becomes row 0 of `to`; rows lie `to_row` elements apart.
// REQUIRES: num_rows and row are multiples of 2 kLanes.
inline void RoundTransposed(const float* from, int64_t num_rows, int64_t row, int64_t begin,
                            int64_t end, const float* factors, BFloat16* to, int64_t to_row) {
  Rounding([=](auto, auto round) {
    for (int64_t c = begin / kLanes * kLanes; c < end; c += kLanes) {
      const int64_t first = std::max(begin, c), last = std::min(end, c + kLanes);
      for (int64_t r = 0; r < num_rows; r += 2 * kLanes) {
        Words tile[kTileWords];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kTileWords; ++i) {
          float lower[kLanes], upper[kLanes];
          for (int l = 0; l < kLanes; ++l)
            lower[l] = factors[c + l] * from[(r + 2 * i) * row + c + l];
          for (int l = 0; l < kLanes; ++l)
            upper[l] = factors[c + l] * from[(r + 2 * i + 1) * row + c + l];
          round.Pairs(lower, upper, reinterpret_cast<uint32_t*>(&tile[i]));
        }
        TransposeWords(tile);
        for (int64_t i = first; i < last; ++i)
          StoreVector(tile[i - c], to + (i - begin) * to_row + r);
      }
    }
  });
}

}  // namespace tandem::kernels
