// The loops of attention over one block of scores: row j holds key j's, one query in each of kBlockQueries columns. So maxima, sums
// and gradients of a query run down a column, sixteen queries side by side, and no loop folds a vector.
// Inline bodies for Vectorised().
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/small_matmul.h"
#include "kernels/cpu/storage.h"
#include "kernels/cpu/transpose.h"

namespace tandem::kernels {

inline constexpr int64_t kBlockQueries = 64;

inline int64_t RoundUp(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Query i of a block sees keys j <= position + i. A block of one vector width is computed up to `SeenByAny`; the rows behind, which
// products over whole tiles still read, are zeroed up to `ZeroedTo`.
struct ScoreBlock {
  int64_t queries;   // rows of the block
  int64_t columns;   // queries, rounded up to kLanes
  int64_t keys;      // rows of scores
  int64_t position;  // place of query 0 among the keys; `keys` if every query sees every key; negative: some see none

  int64_t SeenByAll(int64_t column) const { return std::clamp<int64_t>(position + column + 1, 0, keys); }
  int64_t SeenByAny(int64_t column, int64_t width) const { return std::clamp<int64_t>(position + column + width, 0, keys); }
  int64_t ZeroedTo(int64_t column, int64_t width) const {
    return std::clamp<int64_t>(position + column + width + kTileRows, 0, RoundUp(keys, kTileRows));
  }
  // The first lane at `column` that sees key j.
  int32_t FirstLane(int64_t column, int64_t j) const { return static_cast<int32_t>(j - position - column); }

  // Of a tile of keys from j on: the queries that see one of them.
  int64_t FirstQuery(int64_t j) const { return std::max<int64_t>(0, j - position); }
  // Of a tile of queries from i on: the keys that one of them sees.
  int64_t LastKey(int64_t i) const { return std::clamp<int64_t>(position + i + kTileRows, 0, keys); }
};

// Rows of one head, token after token, into rows of `to` that are `width` long: zeros behind `depth` and behind `rows`.
template <class S, class T>
inline void LoadRows(const S* from, int64_t stride, int64_t rows, int64_t padded_rows, int64_t depth, int64_t width, T* to) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = to + r * width;
#pragma GCC ivdep
    for (int64_t d = 0; d < depth; ++d) row[d] = Load(from[r * stride + d]);
    for (int64_t d = depth; d < width; ++d) row[d] = T(0);
  }
  for (int64_t i = rows * width; i < padded_rows * width; ++i) to[i] = T(0);
}

template <class S, class T>
inline void StoreRows(const T* from, int64_t rows, int64_t depth, int64_t width, const T* factors, S* to, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const T factor = factors[r];
#pragma GCC ivdep
    for (int64_t d = 0; d < depth; ++d) to[r * stride + d] = Store<S>(factor * from[r * width + d]);
  }
}

// Scores, in units of log 2, become exponentials of their distance to the query's maximum; log_sums[i] = log2 of the sum of 2^score,
// inverse_sums[i] = 1 / the sum of exponentials.
template <int kWidth, class T>
inline void ExponentiateColumns(const ScoreBlock& block, T* scores, T* log_sums, T* inverse_sums) {
  for (int64_t c = 0; c < block.columns; c += kWidth) {
    const int64_t all = block.SeenByAll(c), any = block.SeenByAny(c, kWidth), zeroed = block.ZeroedTo(c, kWidth);
    T max[kWidth], other_max[kWidth], sum[kWidth];
    for (int l = 0; l < kWidth; ++l) max[l] = other_max[l] = -std::numeric_limits<T>::infinity();
    T* s = scores + c;
    int64_t j = 0;
    for (; j + 2 <= all; j += 2, s += 2 * kBlockQueries) {
      for (int l = 0; l < kWidth; ++l) max[l] = max[l] < s[l] ? s[l] : max[l];
      for (int l = 0; l < kWidth; ++l) other_max[l] = other_max[l] < s[kBlockQueries + l] ? s[kBlockQueries + l] : other_max[l];
    }
    for (; j < any; ++j, s += kBlockQueries) {
      const int32_t first = block.FirstLane(c, j);
      for (int l = 0; l < kWidth; ++l) {
        s[l] = l < first ? -std::numeric_limits<T>::infinity() : s[l];
        max[l] = max[l] < s[l] ? s[l] : max[l];
      }
    }
    for (int l = 0; l < kWidth; ++l) max[l] = max[l] < other_max[l] ? other_max[l] : max[l];
    for (int l = 0; l < kWidth; ++l) sum[l] = T(0);
    s = scores + c;
    for (j = 0; j < any; ++j, s += kBlockQueries) {
      for (int l = 0; l < kWidth; ++l) {
        const T e = Exp2(s[l] - max[l]);
        s[l] = e;
        sum[l] += e;
      }
    }
    for (; j < zeroed; ++j, s += kBlockQueries) {
      for (int l = 0; l < kWidth; ++l) s[l] = T(0);
    }
    for (int l = 0; l < kWidth; ++l) {
      log_sums[c + l] = max[l] + Log2(sum[l]);
      inverse_sums[c + l] = T(1) / sum[l];
    }
  }
}

// Scores become probabilities P, and grad_scores, which holds dO V', becomes P (dO V' - delta); with dropout it is left alone but
// for zeros where P is 0 for want of sight.
template <int kWidth, bool kDropout, class T>
inline void ProbabilityColumns(const ScoreBlock& block, const T* log_sums, const T* delta, T* scores, T* grad_scores) {
  for (int64_t c = 0; c < block.columns; c += kWidth) {
    const int64_t all = block.SeenByAll(c), any = block.SeenByAny(c, kWidth), zeroed = block.ZeroedTo(c, kWidth);
    T log_sum[kWidth], shift[kWidth];
    for (int l = 0; l < kWidth; ++l) log_sum[l] = log_sums[c + l];
    for (int l = 0; l < kWidth; ++l) shift[l] = delta[c + l];
    T *__restrict__ s = scores + c, *__restrict__ g = grad_scores + c;
    int64_t j = 0;
    for (; j < all; ++j, s += kBlockQueries, g += kBlockQueries) {
      for (int l = 0; l < kWidth; ++l) {
        const T p = Exp2(s[l] - log_sum[l]);
        s[l] = p;
        if constexpr (!kDropout) g[l] = p * (g[l] - shift[l]);
      }
    }
    for (; j < any; ++j, s += kBlockQueries, g += kBlockQueries) {
      const int32_t first = block.FirstLane(c, j);
      for (int l = 0; l < kWidth; ++l) {
        const T p = Exp2(s[l] - log_sum[l]);
        s[l] = l < first ? T(0) : p;
        g[l] = l < first ? T(0) : kDropout ? g[l] : p * (g[l] - shift[l]);
      }
    }
    for (; j < zeroed; ++j, s += kBlockQueries, g += kBlockQueries) {
      for (int l = 0; l < kWidth; ++l) s[l] = T(0);
      for (int l = 0; l < kWidth; ++l) g[l] = T(0);
    }
  }
}

// delta[i] = sum over d of output grad_output, sixteen queries at a time: lane sums of each row (lanes.h), folded after a transpose.
template <class S, class T>
inline void RowDots(const S* output, int64_t stride, const T* grad_rows, int64_t rows, int64_t depth, int64_t width, T* delta) {
  alignas(64) T lanes[kLanes * kLanes], columns[kLanes * kLanes];
  for (int64_t r = 0; r < rows; r += kLanes) {
    const int64_t here = std::min<int64_t>(kLanes, rows - r);
    for (int64_t i = 0; i < here; ++i) {
      const S* out = output + (r + i) * stride;
      const T* grad = grad_rows + (r + i) * width;
      T sum[kLanes] = {};
      int64_t d = 0;
      for (; d + kLanes <= depth; d += kLanes) {
        for (int l = 0; l < kLanes; ++l) sum[l] = Fma(static_cast<T>(Load(out[d + l])), grad[d + l], sum[l]);
      }
      for (int l = 0; d + l < depth; ++l) sum[l] = Fma(static_cast<T>(Load(out[d + l])), grad[d + l], sum[l]);
      for (int l = 0; l < kLanes; ++l) lanes[i * kLanes + l] = sum[l];
    }
    for (int64_t i = here * kLanes; i < kLanes * kLanes; ++i) lanes[i] = T(0);
    TransposeTile(lanes, kLanes, columns);
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half * kLanes; ++i) columns[i] += columns[i + half * kLanes];
    }
    for (int l = 0; l < kLanes; ++l) delta[r + l] = columns[l];
  }
}

// The mask of one (sequence, head): entry (query i, key j) uses element base[i] + places[j] of the stream.
struct ColumnMask {
  uint64_t folded_key = 0, step = 0;
  int32_t threshold = 0;
  const int64_t* places = nullptr;  // per key of the block
  bool contiguous = false;          // places are a run, so their words are one
  uint64_t base[kBlockQueries];

  // Calls apply(j, kept) for keys [0, keys) of sixteen queries from `column` on; kept[l] is 0 or 1.
  template <InstructionSet kSet, class Apply>
  void ForEachKey(int64_t column, int64_t keys, const Apply& apply) const {
    uint64_t first[kLanes];
    const auto columns = [&](int64_t from, int64_t count) {
      for (int l = 0; l < kLanes; ++l) first[l] = base[column + l] + static_cast<uint64_t>(places[from]);
      ForEachWordColumn<kSet>(folded_key, step, first, count, [&](int64_t j, const uint32_t* words) {
        int32_t kept[kLanes];
        for (int l = 0; l < kLanes; ++l) kept[l] = static_cast<int32_t>(words[l] >> 8) >= threshold;
        apply(from + j, kept);
      });
    };
    if (contiguous) return columns(0, keys);
    for (int64_t j = 0; j < keys; ++j) columns(j, 1);
  }
};

// Probabilities of dropped entries become 0.
template <InstructionSet kSet, class T>
inline void DropColumns(const ScoreBlock& block, const ColumnMask& mask, T* scores) {
  for (int64_t c = 0; c < block.columns; c += kLanes) {
    mask.ForEachKey<kSet>(c, block.SeenByAny(c, kLanes), [=](int64_t j, const int32_t* kept) {
      T* s = scores + j * kBlockQueries + c;
      for (int l = 0; l < kLanes; ++l) s[l] = kept[l] ? s[l] : T(0);
    });
  }
}

// grad_scores, dO V', becomes P (m dO V' - delta) with the mask m of 0 and keep_scale; scores, P, becomes P without dropped entries.
template <InstructionSet kSet, class T>
inline void DropGradientColumns(const ScoreBlock& block, const ColumnMask& mask, T keep_scale, const T* delta, T* scores,
                                T* grad_scores) {
  for (int64_t c = 0; c < block.columns; c += kLanes) {
    T shift[kLanes];
    for (int l = 0; l < kLanes; ++l) shift[l] = delta[c + l];
    mask.ForEachKey<kSet>(c, block.SeenByAny(c, kLanes), [&](int64_t j, const int32_t* kept) {
      T *__restrict__ s = scores + j * kBlockQueries + c, *__restrict__ g = grad_scores + j * kBlockQueries + c;
      for (int l = 0; l < kLanes; ++l) {
        g[l] = s[l] * ((kept[l] ? keep_scale * g[l] : T(0)) - shift[l]);
        s[l] = kept[l] ? s[l] : T(0);
      }
    });
  }
}

}  // namespace tandem::kernels
