// The passes of attention over one block of scores, each in the widest vector copy of the
// processor: three products, and the passes that turn scores into probabilities or gradients.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention/block.h"
#include "kernels/cpu/matmul/small_matmul.h"
#include "kernels/cpu/vector/bf16_rounding.h"
#include "kernels/cpu/vector/row_prefetch.h"
#include "kernels/cpu/vector/vectorise.h"

namespace tandem::kernels {

// to [keys, queries] = rows [keys, depth] columns [depth, queries], for visible pairs.
template <class T>
void ScoreProduct(const ScoreBlock& block, int64_t depth, const HeadRows<T>& rows, const T* columns,
                  T* to, RowPrefetch& prefetch) {
  SmallMatmul(
      block.keys,
      SmallOperands<T>{rows.data, rows.stride, 1, columns, kScoreColumns, to, kScoreRow}, prefetch,
      [=](int64_t j) {
        return TileExtent{0, depth, block.FirstQuery(j) / kLanes * kLanes, block.columns, false};
      });
}

// to [queries, width] = scores [keys, queries] transposed, times rows [keys, width], over visible
// keys.
template <class T>
void QueryProduct(const ScoreBlock& block, const T* scores, const HeadRows<T>& rows, int64_t width,
                  T* to, RowPrefetch& prefetch) {
  SmallMatmul(block.columns,
              SmallOperands<T>{scores, 1, kScoreRow, rows.data, rows.stride, to, width}, prefetch,
              [=](int64_t i) {
                return TileExtent{0, block.LastKey(i), 0, width, false};
              });
}

// to [keys, width] = scores [keys, queries] rows [queries, width], over queries that see the key.
// Computes whole tiles of keys. Tiles that begin with one of the first known_keys keys add to `to`;
// other tiles overwrite it. A tile with known and new keys holds sums or zeros from the block
// before.
template <class T>
void KeyProduct(const ScoreBlock& block, const T* scores, const HeadRows<T>& rows, int64_t width,
                int64_t known_keys, T* to, RowPrefetch& prefetch) {
  SmallMatmul(RoundUp(block.keys, kTileRows),
              SmallOperands<T>{scores, kScoreRow, 1, rows.data, rows.stride, to, width}, prefetch,
              [=](int64_t j) {
                return TileExtent{block.FirstQuery(j), block.columns, 0, width, j < known_keys};
              });
}

template <class T>
void ExponentiateScores(const ScoreBlock& block, T scale, const ColumnMask& mask, T* scores,
                        T* log_sums, T* inverse_sums) {
  if (mask.limit == 0) {
    Vectorised([&](auto set) {
      ExponentiateColumns<set, false>(block, scale, mask, scores, log_sums, inverse_sums);
    });
  } else {
    Vectorised([&](auto set) {
      ExponentiateColumns<set, true>(block, scale, mask, scores, log_sums, inverse_sums);
    });
  }
}

template <class T>
void GradientsOfScores(const ScoreBlock& block, const GradientTerms<T>& terms, int64_t first_key,
                       T* scores, T* grads) {
  if (terms.mask.limit == 0) {
    Vectorised(
        [&](auto set) { GradientColumns<set, false>(block, terms, first_key, scores, grads); });
  } else {
    Vectorised(
        [&](auto set) { GradientColumns<set, true>(block, terms, first_key, scores, grads); });
  }
}

inline void RoundGradientsOfScores(const ScoreBlock& block, const GradientTerms<float>& terms,
                                   int64_t first_key, const float* scores, const float* grads,
                                   int64_t num_rows, int64_t num_columns, const RoundedScores& to) {
  if (terms.mask.limit == 0) {
    Rounding([&](auto set, auto round) {
      RoundGradientColumns<set, false>(block, terms, first_key, scores, grads, num_rows,
                                       num_columns, to, round);
    });
  } else {
    Rounding([&](auto set, auto round) {
      RoundGradientColumns<set, true>(block, terms, first_key, scores, grads, num_rows, num_columns,
                                      to, round);
    });
  }
}

}  // namespace tandem::kernels
