// The loops of attention over one block of scores. Row j holds the scores of key j; each of up to
// kScoreColumns columns is one query. So maxima, sums and gradients of a query run down a column,
// for sixteen queries side by side. No loop folds a vector. Inline bodies for Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/matmul/small_matmul.h"
#include "kernels/cpu/vector/dropout_mask.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/transpose.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

// The largest number of queries whose scores exist at once.
inline constexpr int64_t kScoreColumns = 64;
// The distance between rows of scores, in elements: an odd number of vectors of 16. Passes go down
// columns. With an even number the lines of a column would share a quarter of L1's sets.
inline constexpr int64_t kScoreRow = kScoreColumns + kLanes;

// Query i of a block sees keys j <= position + i. Each vector of queries is computed up to
// `SeenByAny`. Rows from there to `ZeroedTo` are zeroed, because products over whole tiles still
// read them.
struct ScoreBlock {
  int64_t columns;  // queries, a multiple of kLanes
  int64_t keys;     // rows of scores
  // The place of query 0 among the keys. `keys`: every query sees every key. Negative: some see
  // none.
  int64_t position;

  int64_t SeenByAll(int64_t column) const {
    return std::clamp<int64_t>(position + column + 1, 0, keys);
  }
  int64_t SeenByAny(int64_t column, int64_t width) const {
    return std::clamp<int64_t>(position + column + width, 0, keys);
  }
  int64_t ZeroedTo(int64_t column, int64_t width) const {
    return std::clamp<int64_t>(position + column + width + kTileRows, 0, RoundUp(keys, kTileRows));
  }
  // The `width` queries from `column` on, or all that remain.
  ScoreBlock Part(int64_t column, int64_t width) const {
    return {std::min(columns - column, width), keys, position + column};
  }

  // The number of lanes of the vector at `column` that do not see key j.
  int32_t Hidden(int64_t column, int64_t j) const {
    return static_cast<int32_t>(j - position - column);
  }

  // The first query that sees one of the kTileRows keys from j on.
  int64_t FirstQuery(int64_t j) const { return std::clamp<int64_t>(j - position, 0, columns); }
  // The end of the keys that the kTileRows queries from i on see.
  int64_t LastKey(int64_t i) const {
    return std::clamp<int64_t>(position + i + kTileRows, 0, keys);
  }
};

// Rows of one head in memory, `stride` elements apart.
template <class T>
struct HeadRows {
  const T* data = nullptr;
  int64_t stride = 0;

  HeadRows From(int64_t row) const { return {data + row * stride, stride}; }
};

// Loads rows of one head into rows of `to`, `width` elements long, with zeros from `depth` on.
// Copies sixteen elements at a time, because most depths are multiples of sixteen.
template <class S, class T>
inline void LoadRows(const S* from, int64_t stride, int64_t rows, int64_t depth, int64_t width,
                     T* to) {
  const int64_t whole = depth / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r, from += stride, to += width) {
    for (int64_t d = 0; d < whole; d += kLanes) {
      for (int l = 0; l < kLanes; ++l) to[d + l] = Load(from[d + l]);
    }
    if (whole == width) continue;
    for (int64_t d = whole; d < width; ++d) to[d] = T(0);
    for (int64_t d = whole; d < depth; ++d) to[d] = Load(from[d]);
  }
}

// Stores row r times factors[r * factor_stride].
template <class S, class T>
inline void StoreRows(const T* from, int64_t rows, int64_t depth, int64_t width, const T* factors,
                      int64_t factor_stride, S* to, int64_t stride) {
  const int64_t whole = depth / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r, from += width, to += stride, factors += factor_stride) {
    const T factor = *factors;
    for (int64_t d = 0; d < whole; d += kLanes) {
#pragma GCC unroll 1
      for (int l = 0; l < kLanes; ++l) to[d + l] = Store<S>(factor * from[d + l]);
    }
    for (int64_t d = whole; d < depth; ++d) to[d] = Store<S>(factor * from[d]);
  }
}

// The dropout mask of one (sequence, head).
// Query i and key j use element base[i] + places[j] of the stream.
struct ColumnMask {
  PhiloxKeys keys;
  uint64_t step = 0;
  uint32_t limit = 0;               // DropLimit of the threshold; 0: no dropout
  const int64_t* places = nullptr;  // per key
  bool contiguous = false;          // places are consecutive, so one run of words serves all keys
  uint32_t* room = nullptr;         // WordColumnsRoom(keys)
  const uint64_t* base = nullptr;   // per query

  // The mask of the queries from `column` on.
  ColumnMask From(int64_t column) const {
    ColumnMask mask = *this;
    mask.base += column;
    return mask;
  }
  // Words for the queries from `column` on, with a row per key in [key, key + count).
  template <InstructionSet kSet>
  WordColumns<kSet> Words(int64_t column, int64_t key, int64_t count) const {
    uint64_t first[kLanes];
    const auto place = [&](int64_t at) {
#pragma GCC unroll 1
      for (int l = 0; l < kLanes; ++l)
        first[l] = base[column + l] + static_cast<uint64_t>(places[at]);
    };
    if (contiguous && count > 0) {
      place(key);
      return WordColumns<kSet>(keys, step, first, count, room);
    }
    uint32_t one[WordColumnsRoom(1)];
    for (int64_t j = 0; j < count; ++j) {
      place(key + j);
      const uint32_t* words = WordColumns<kSet>(keys, step, first, 1, one).Rows(0, 1);
      for (int l = 0; l < kLanes; ++l) room[j * kLanes + l] = words[l];
    }
    return WordColumns<kSet>(room);
  }
};

// Computes the largest visible score of each of kWidth queries, and sets hidden scores to minus
// infinity.
template <int kWidth, class T>
inline void ColumnMaxima(const ScoreBlock& block, int64_t column, T* scores, T* maxima) {
  const int64_t all = block.SeenByAll(column), any = block.SeenByAny(column, kWidth);
  T max[kWidth], other[kWidth];  // two chains, because each comparison waits for the one before
  for (int l = 0; l < kWidth; ++l) max[l] = -std::numeric_limits<T>::infinity();
  for (int l = 0; l < kWidth; ++l) other[l] = -std::numeric_limits<T>::infinity();
  T* s = scores + column;
  int64_t j = 0;
  for (; j + 2 <= all; j += 2, s += 2 * kScoreRow) {
    RaiseTo<kWidth>(s, max);
    RaiseTo<kWidth>(s + kScoreRow, other);
  }
  for (; j < any; ++j, s += kScoreRow) {
    const int32_t hidden = block.Hidden(column, j);
#pragma GCC unroll 1
    for (int l = 0; l < kWidth; ++l) {
      const T score = s[l];
      s[l] = l < hidden ? -std::numeric_limits<T>::infinity() : score;
    }
    RaiseTo<kWidth>(s, max);
  }
  RaiseTo<kWidth>(other, max);
  for (int l = 0; l < kWidth; ++l) maxima[l] = max[l];
}

// Calls body(begin, end, words) for runs of the keys that the kLanes queries from `column` on see.
// `words` has a row per key of the run; null without dropout. The block's first key is key
// first_key of the mask.
template <InstructionSet kSet, bool kDropout, class Body>
inline void ForRowsOfWords(const ScoreBlock& block, int64_t column, const ColumnMask& mask,
                           int64_t first_key, const Body& body) {
  const int64_t any = block.SeenByAny(column, kLanes);
  if constexpr (kDropout) {
    const WordColumns<kSet> words = mask.Words<kSet>(column, first_key, any);
    for (int64_t begin = 0, end; begin < any; begin = end) {
      end = words.EndOfRows(begin, any);
      body(begin, end, words.Rows(begin, end));
    }
  } else {
    body(0, any, nullptr);
  }
}

// Zeros scores that no query of a vector sees, because products over whole tiles read them. Covers
// the kLanes queries from `column` on.
template <int kWidth, class T>
inline void ZeroBehind(const ScoreBlock& block, int64_t column, T* scores) {
  for (int64_t c = column; c < column + kLanes; c += kWidth) {
    const int64_t zeroed = block.ZeroedTo(c, kWidth);
    for (int64_t j = block.SeenByAny(c, kWidth); j < zeroed; ++j) {
      for (int l = 0; l < kWidth; ++l) scores[j * kScoreRow + c + l] = T(0);
    }
  }
}

// Turns scores into exponentials relative to the query's maximum, or 0 if dropped. `scale` converts
// scores to units of log 2.
// log_sums[i] = log2 of the sum of 2^(scale score).
// inverse_sums[i] = 1 / (sum of the exponentials, including dropped ones).
template <InstructionSet kSet, bool kDropout, class T>
inline void ExponentiateColumns(const ScoreBlock& block, T scale, const ColumnMask& mask, T* scores,
                                T* log_sums, T* inverse_sums) {
  constexpr int kWidth = kVectorLanes<kSet, T>;
  for (int64_t first = 0; first < block.columns; first += kLanes) {
    T maxima[kLanes], sums[kLanes] = {};
    for (int64_t c = 0; c < kLanes; c += kWidth)
      ColumnMaxima<kWidth>(block, first + c, scores, maxima + c);
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) maxima[l] *= scale;
    ForRowsOfWords<kSet, kDropout>(
        block, first, mask, 0, [&](int64_t begin, int64_t end, const uint32_t* rows) {
          const uint32_t limit = mask.limit;
          for (int64_t c = 0; c < kLanes; c += kWidth) {
            const int64_t last = std::min(end, block.SeenByAny(first + c, kWidth));
            T max[kWidth], sum[kWidth];
            for (int l = 0; l < kWidth; ++l) max[l] = maxima[c + l];
            for (int l = 0; l < kWidth; ++l) sum[l] = sums[c + l];
            const uint32_t* words = rows + (kDropout ? c : 0);
            T* s = scores + begin * kScoreRow + first + c;
            for (int64_t j = begin; j < last; ++j, s += kScoreRow, words += kDropout ? kLanes : 0) {
#pragma GCC unroll 1
              for (int l = 0; l < kWidth; ++l) {
                const T e = Exp2(Fma(s[l], scale, -max[l]));
                sum[l] += e;
                s[l] = kDropout ? DropOrKeep(words[l], limit, e) : e;
              }
            }
            for (int l = 0; l < kWidth; ++l) sums[c + l] = sum[l];
          }
        });
    ZeroBehind<kWidth>(block, first, scores);
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) {
      log_sums[first + l] = maxima[l] + Log2(sums[l]);
      inverse_sums[first + l] = T(1) / sums[l];
    }
  }
}

// One key of kWidth queries, with P = 2^(scale score - log_sum) and the mask m of 0 and keep_scale.
// The score becomes P, or 0 if dropped. grad, which holds dO V', becomes P (m dO V' - delta). The
// first `hidden` lanes do not see the key and get 0. kRounded: both results will be rounded to
// bf16.
template <int kWidth, bool kDropout, bool kRounded, class T>
inline void GradientRow(T scale, const T* log_sum, const T* delta, const uint32_t* words,
                        uint32_t limit, T keep_scale, int32_t hidden, T* __restrict__ score,
                        T* __restrict__ grad) {
#pragma GCC unroll 1
  for (int l = 0; l < kWidth; ++l) {
    T raw = Fma(score[l], scale, -log_sum[l]);
    if constexpr (kRounded)
      raw = Exp2ForBFloat16(raw);
    else
      raw = Exp2(raw);
    const T p = l < hidden ? T(0) : raw;
    const T product = l < hidden ? T(0) : grad[l];
    const T kept = kDropout ? DropOrKeep(words[l], limit, product * keep_scale) : product;
    grad[l] = p * (kept - delta[l]);
    score[l] = kDropout ? DropOrKeep(words[l], limit, p) : p;
  }
}

// The inputs that turn scores into their gradients, for the queries of a block.
template <class T>
struct GradientTerms {
  T scale;
  ColumnMask mask;
  T keep_scale;
  const T *log_sums, *deltas;  // per query

  // The terms of the queries from `column` on.
  GradientTerms From(int64_t column) const {
    return {scale, mask.From(column), keep_scale, log_sums + column, deltas + column};
  }
};

// Applies GradientRow to the whole block. The block's first key is key first_key of the mask.
template <InstructionSet kSet, bool kDropout, class T>
inline void GradientColumns(const ScoreBlock& block, const GradientTerms<T>& terms,
                            int64_t first_key, T* scores, T* grads) {
  constexpr int kWidth = kVectorLanes<kSet, T>;
  const ColumnMask& mask = terms.mask;
  for (int64_t first = 0; first < block.columns; first += kLanes) {
    ForRowsOfWords<kSet, kDropout>(
        block, first, mask, first_key, [&](int64_t begin, int64_t end, const uint32_t* rows) {
          for (int64_t c = first; c < first + kLanes; c += kWidth) {
            const int64_t all = std::min(end, block.SeenByAll(c)),
                          any = std::min(end, block.SeenByAny(c, kWidth));
            T log_sum[kWidth], delta[kWidth];
            for (int l = 0; l < kWidth; ++l) log_sum[l] = terms.log_sums[c + l];
            for (int l = 0; l < kWidth; ++l) delta[l] = terms.deltas[c + l];
            const uint32_t* words = rows + (kDropout ? c - first : 0);
            T *s = scores + begin * kScoreRow + c, *g = grads + begin * kScoreRow + c;
            int64_t j = begin;
            for (; j < all; ++j, s += kScoreRow, g += kScoreRow, words += kDropout ? kLanes : 0) {
              GradientRow<kWidth, kDropout, false>(terms.scale, log_sum, delta, words, mask.limit,
                                                   terms.keep_scale, 0, s, g);
            }
            for (; j < any; ++j, s += kScoreRow, g += kScoreRow, words += kDropout ? kLanes : 0) {
              GradientRow<kWidth, kDropout, false>(terms.scale, log_sum, delta, words, mask.limit,
                                                   terms.keep_scale, block.Hidden(c, j), s, g);
            }
          }
        });
    ZeroBehind<kWidth>(block, first, scores);
    ZeroBehind<kWidth>(block, first, grads);
  }
}

// The target of rounded scores and gradients, a row per key. Both are stored in rows of two
// vectors. Gradients are also stored in pairs of keys, kLanes per row; the pairs of the next kLanes
// queries lie `panel` words further on.
struct RoundedScores {
  static constexpr int64_t kRow = 2 * kLanes;
  BFloat16 *scores, *grads;
  uint32_t* grad_pairs;
  int64_t panel;

  // The target of the queries from `column` on, a multiple of kLanes.
  RoundedScores From(int64_t column) const {
    return {scores + column, grads + column, grad_pairs + column / kLanes * panel, panel};
  }
  void NextKeys() { scores += 2 * kRow, grads += 2 * kRow, grad_pairs += kLanes; }
};

// Like GradientColumns, but rounds with `round` (bf16_rounding.h) while results are in registers.
// Writes num_rows rows (an even number) of num_columns columns (one vector or two). Writes zeros
// past the block's end and where no query of the vector sees the key.
template <InstructionSet kSet, bool kDropout, class Round>
inline void RoundGradientColumns(const ScoreBlock& block, const GradientTerms<float>& terms,
                                 int64_t first_key, const float* scores, const float* grads,
                                 int64_t num_rows, int64_t num_columns, const RoundedScores& to,
                                 const Round& round) {
  const ColumnMask& mask = terms.mask;
  const auto store = [&](const float* score, const float* next_score, const float* grad,
                         const float* next_grad, RoundedScores& at) {
    round.Rows(score, next_score, at.scores, at.scores + at.kRow);
    round.RowsAndPairs(grad, next_grad, at.grads, at.grads + at.kRow, at.grad_pairs);
    at.NextKeys();
  };
  const auto zero_from = [&](int64_t j, RoundedScores& at) {
    const float zeros[kLanes] = {};
    for (; j < num_rows; j += 2) store(zeros, zeros, zeros, zeros, at);
  };
  for (int64_t c = 0; c < num_columns; c += kLanes) {
    RoundedScores at = to.From(c);  // the loop's own copy, so that its stores cannot change it
    if (c >= block.columns) {
      zero_from(0, at);
      continue;
    }
    const int64_t all = block.SeenByAll(c), any = block.SeenByAny(c, kLanes);
    const uint32_t* words = kDropout ? mask.Words<kSet>(c, first_key, any).Rows(0, any) : nullptr;
    float log_sum[kLanes], delta[kLanes];
    for (int l = 0; l < kLanes; ++l) log_sum[l] = terms.log_sums[c + l];
    for (int l = 0; l < kLanes; ++l) delta[l] = terms.deltas[c + l];
    const float scale = terms.scale;
    const auto form = [&](int64_t j, int32_t hidden, float* score, float* grad) {
      for (int l = 0; l < kLanes; ++l) score[l] = scores[j * kScoreRow + c + l];
      for (int l = 0; l < kLanes; ++l) grad[l] = grads[j * kScoreRow + c + l];
      GradientRow<kLanes, kDropout, true>(scale, log_sum, delta,
                                          kDropout ? words + j * kLanes : nullptr, mask.limit,
                                          terms.keep_scale, hidden, score, grad);
    };
    int64_t j = 0;
    for (; j + 2 <= all; j += 2) {
      float score[kLanes], next_score[kLanes], grad[kLanes], next_grad[kLanes];
      form(j, 0, score, grad);
      form(j + 1, 0, next_score, next_grad);
      store(score, next_score, grad, next_grad, at);
    }
    for (; j < any; j += 2) {
      float score[kLanes], next_score[kLanes], grad[kLanes], next_grad[kLanes];
      form(j, block.Hidden(c, j), score, grad);
      if (j + 1 < any) {
        form(j + 1, block.Hidden(c, j + 1), next_score, next_grad);
      } else {
        for (int l = 0; l < kLanes; ++l) next_score[l] = next_grad[l] = 0;
      }
      store(score, next_score, grad, next_grad, at);
    }
    zero_from(j, at);
  }
}

// dots[i] = the folded lanes that add(i - begin, lanes) adds to, for i in [begin, end); 0 before
// begin.
// REQUIRES: `end` is a multiple of kLanes.
template <class T, class Add>
inline void RowDots(int64_t begin, int64_t end, T* dots, const Add& add) {
  alignas(64) T sums[kTileElements];
  for (int64_t r = 0; r < end; r += kLanes) {
    for (int64_t i = r; i < r + kLanes; ++i) {
      T lanes[kLanes];
      for (int l = 0; l < kLanes; ++l) lanes[l] = T(0);
      if (begin <= i) add(i - begin, lanes);
      for (int l = 0; l < kLanes; ++l) sums[(i - r) * kLanes + l] = lanes[l];
    }
    FoldRows(sums, dots + r);
  }
}

}  // namespace tandem::kernels
