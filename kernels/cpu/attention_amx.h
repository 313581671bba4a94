// The products of attention on bf16 storage in the tiles of AMX: probabilities and the gradients of scores are rounded to bf16 before
// they meet v, k and q (as in Dao et al. 2022), all sums are f32's. Sums run over keys or queries in ascending groups of 32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/row_prefetch.h"
#include "kernels/cpu/transpose.h"

namespace tandem::kernels {

// pairs [rows / 2, columns]: elements of rows 2p (lower half) and 2p + 1.
inline void WeaveRows(const BFloat16* rows, int64_t num_rows, int64_t columns, uint32_t* pairs) {
  for (int64_t r = 0; r < num_rows; r += 2, rows += 2 * columns, pairs += columns) {
    const BFloat16 *lower = rows, *upper = rows + columns;
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) pairs[c] = lower[c].bits | static_cast<uint32_t>(upper[c].bits) << 16;
  }
}

// Sixteen columns of the scores of two keys: as pairs and, if `rows` is not null, as two rows of bf16, kBlockQueries apart.
inline void RoundPair(const float* lower, const float* upper, uint32_t* pairs, BFloat16* rows) {
  uint32_t words[kLanes];
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) words[l] = BFloat16Pair::Of(lower[l], upper[l]).bits;
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) pairs[l] = words[l];
  if (rows == nullptr) return;
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) rows[l].bits = static_cast<uint16_t>(words[l]);
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) rows[kBlockQueries + l].bits = static_cast<uint16_t>(words[l] >> 16);
}

// A block of scores, whose rows are kBlockQueries long, as pairs of keys and, if `rows` is not null, as rows of bf16. `columns` and
// `num_keys` are multiples of kAmxUnit; what no query of a vector sees is 0.
inline void RoundScores(const ScoreBlock& block, const float* scores, int64_t columns, int64_t num_keys, uint32_t* pairs,
                        BFloat16* rows) {
  const float zeros[kLanes] = {};
  for (int64_t c = 0; c < columns; c += kLanes) {
    const int64_t seen = c < block.columns ? block.SeenByAny(c, kLanes) : 0;
    const float* s = scores + c;
    uint32_t* to = pairs + c;
    BFloat16* row = rows == nullptr ? nullptr : rows + c;
    for (int64_t j = 0; j < num_keys; j += 2, s += 2 * kBlockQueries, to += kBlockQueries) {
      RoundPair(j < seen ? s : zeros, j + 1 < seen ? s + kBlockQueries : zeros, to, row);
      if (row != nullptr) row += 2 * kBlockQueries;
    }
  }
}

class AmxProducts {
 public:
  using T = float;
  static constexpr int64_t kChunkKeys = 16 * kAmxUnit;

  static bool Takes(int64_t depth) { return UsesTiles() && depth % kAmxUnit == 0; }

  AmxProducts(const AttentionProblem<BFloat16>& p, const AttentionTask& task, bool backward)
      : p_(p), task_(task), depth_(p.depth), padded_keys_(RoundUp(task.num_keys, kAmxUnit)), backward_(backward) {
    TakeScratch([this](Arena& arena) { Cut(arena); });
  }

  int64_t width() const { return depth_; }
  float* scores() const { return scores_; }
  float* grad_scores() const { return grad_scores_; }
  float* out() const { return out_; }
  const float* grad_out() const { return grad_out_; }
  float* grad_k() const { return grad_k_; }
  float* grad_v() const { return grad_v_; }

  void LoadKeys(int64_t begin, int64_t end) {
    known_keys_ = begin;
    CopyRows(p_.k, begin, end, k_);
    CopyRows(p_.v, begin, end, v_);
    // The columns' tiles that hold one of these keys.
    const int64_t first = begin / kLanes * kLanes, count = RoundUp(end, kAmxUnit) - first;
    BFloat16* columns = backward_ ? k_columns_ : v_columns_;
    const BFloat16* rows = (backward_ ? k_ : v_) + first * depth_;
    Vectorised([=, depth = depth_, stride = padded_keys_] {
      TransposeRows(Bits(rows), count, depth, depth, Bits(columns) + first, stride);
    });
  }
  void LoadQueries(const QueryRows& rows, int64_t columns) { LoadBlock(p_.q, rows, columns, q_pairs_of_queries_, q_pairs_); }
  void LoadGradient(const QueryRows& rows, int64_t columns) {
    LoadBlock(p_.grad_output, rows, columns, grad_out_pairs_of_queries_, grad_out_pairs_);
    std::fill_n(grad_out_, rows.missing * depth_, 0.0f);
    LoadHead(p_, task_.head, p_.grad_output, rows.token, rows.count, grad_out_ + rows.missing * depth_);
  }

  void Scores(const ScoreBlock& block, RowPrefetch& prefetch) { ScoresInto(block, k_, q_pairs_, scores_, prefetch); }
  void Output(const ScoreBlock& block, RowPrefetch& prefetch) {
    Round(block, scores_, nullptr);
    QueriesInto(block, v_columns_, false, prefetch);
    TransposeOut(block.columns);
  }
  void BackwardScores(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    ScoresInto(block, k_ + key * depth_, q_pairs_, scores_, prefetch);
    ScoresInto(block, v_ + key * depth_, grad_out_pairs_, grad_scores_, prefetch);
  }
  void AddGradients(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    Round(block, scores_, rounded_);
    KeysInto(block, key, grad_out_pairs_of_queries_, grad_v_, prefetch);
    Round(block, grad_scores_, rounded_);
    KeysInto(block, key, q_pairs_of_queries_, grad_k_, prefetch);
    QueriesInto(block, k_columns_ + key, key > 0, prefetch);
  }
  void FinishQueryGradient(int64_t columns) { TransposeOut(columns); }

 private:
  static int64_t Padded(int64_t count) { return RoundUp(count, kAmxUnit); }
  static const uint16_t* Bits(const BFloat16* x) { return &x->bits; }
  static uint16_t* Bits(BFloat16* x) { return &x->bits; }

  void Cut(Arena& arena) {
    const int64_t block = kBlockQueries * depth_, keys = padded_keys_ * depth_;
    const int64_t score_room = (backward_ ? std::min(padded_keys_, kChunkKeys) : padded_keys_) * kBlockQueries;
    k_ = arena.Take<BFloat16>(keys);
    v_ = arena.Take<BFloat16>(keys);
    rows_ = arena.Take<BFloat16>(block);
    q_pairs_ = arena.Take<uint32_t>(block / 2);
    q_pairs_of_queries_ = arena.Take<uint32_t>(block / 2);
    scores_ = arena.Take<float>(score_room);
    score_pairs_ = arena.Take<uint32_t>(score_room / 2);
    out_columns_ = arena.Take<float>(block);
    out_ = arena.Take<float>(block);
    if (!backward_) {
      v_columns_ = arena.Take<BFloat16>(keys);
      return;
    }
    k_columns_ = arena.Take<BFloat16>(keys);
    grad_k_ = arena.Take<float>(keys);
    grad_v_ = arena.Take<float>(keys);
    grad_scores_ = arena.Take<float>(score_room);
    rounded_ = arena.Take<BFloat16>(score_room);
    grad_out_ = arena.Take<float>(block);
    grad_out_pairs_ = arena.Take<uint32_t>(block / 2);
    grad_out_pairs_of_queries_ = arena.Take<uint32_t>(block / 2);
  }

  void CopyHead(const TokenRows<const BFloat16>& from, int64_t token, int64_t rows, BFloat16* to) const {
    Vectorised([=, first = from.data + token * from.stride + task_.head * depth_, stride = from.stride, depth = depth_] {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t d = 0; d < depth; d += kAmxUnit) {
          std::memcpy(static_cast<void*>(to + r * depth + d), first + r * stride + d, kAmxUnit * sizeof(BFloat16));
        }
      }
    });
  }
  // Keys [begin, end), and zeros up to a whole tile.
  void CopyRows(const TokenRows<const BFloat16>& from, int64_t begin, int64_t end, BFloat16* to) const {
    CopyHead(from, task_.first_key + begin, end - begin, to + begin * depth_);
    std::fill(to + end * depth_, to + Padded(end) * depth_, BFloat16{0});
  }
  // A block's rows as pairs of neighbouring elements, a column per query, and as pairs of queries.
  void LoadBlock(const TokenRows<const BFloat16>& from, const QueryRows& rows, int64_t columns, uint32_t* of_queries, uint32_t* pairs) {
    std::fill_n(rows_, rows.missing * depth_, BFloat16{0});
    CopyHead(from, rows.token, rows.count, rows_ + rows.missing * depth_);
    std::fill(rows_ + columns * depth_, rows_ + Padded(columns) * depth_, BFloat16{0});
    const auto* words = reinterpret_cast<const uint32_t*>(rows_);
    Vectorised([=, this] {
      TransposeRows(words, Padded(columns), depth_ / 2, depth_ / 2, pairs, kBlockQueries);
      if (backward_) WeaveRows(rows_, Padded(columns), depth_, of_queries);
    });
  }
  void TransposeOut(int64_t columns) {
    Vectorised([&] { TransposeRows(out_columns_, depth_, columns, kBlockQueries, out_, depth_); });
  }
  void Round(const ScoreBlock& block, const float* scores, BFloat16* rows) {
    Vectorised([=, this, &block] { RoundScores(block, scores, Padded(block.columns), Padded(block.keys), score_pairs_, rows); });
  }

  // Products in strips of 32, each over what its keys or queries see; between strips other rows are fetched.
  static void Fetch(RowPrefetch& prefetch) {
    constexpr int kSteps = 6;
    for (int i = 0; i < kSteps; ++i) prefetch.Step();
  }
  // to [keys, queries] = rows [keys, depth] columns, given in pairs.
  void ScoresInto(const ScoreBlock& block, const BFloat16* rows, const uint32_t* pairs, float* to, RowPrefetch& prefetch) const {
    for (int64_t j = 0; j < block.keys; j += kAmxUnit) {
      const int64_t first = block.FirstQuery(j) / kAmxUnit * kAmxUnit;
      Fetch(prefetch);
      AmxProduct(kAmxUnit, Padded(block.columns) - first, depth_,
                 {rows + j * depth_, depth_, pairs + first, kBlockQueries, to + j * kBlockQueries + first, kBlockQueries}, false);
    }
  }
  // to [keys, depth] += the rounded scores of keys from `key` on times rows [queries, depth], given in pairs of queries. Strips with
  // keys that no block before saw begin with it.
  void KeysInto(const ScoreBlock& block, int64_t key, const uint32_t* pairs, float* to, RowPrefetch& prefetch) const {
    for (int64_t j = 0; j < block.keys; j += kAmxUnit) {
      const int64_t first = block.FirstQuery(j) / kAmxUnit * kAmxUnit;
      Fetch(prefetch);
      AmxProduct(kAmxUnit, depth_, Padded(block.columns) - first,
                 {rounded_ + j * kBlockQueries + first, kBlockQueries, pairs + first / 2 * depth_, depth_, to + (key + j) * depth_, depth_},
                 key + j < known_keys_);
    }
  }
  // out_columns [depth, queries] (+)= columns [depth, keys] times the scores in pairs.
  void QueriesInto(const ScoreBlock& block, const BFloat16* columns, bool accumulate, RowPrefetch& prefetch) const {
    for (int64_t i = 0; i < block.columns; i += kAmxUnit) {
      const int64_t seen = std::clamp<int64_t>(block.position + i + kAmxUnit, 0, block.keys);
      Fetch(prefetch);
      AmxProduct(depth_, kAmxUnit, Padded(seen),
                 {columns, padded_keys_, score_pairs_ + i, kBlockQueries, out_columns_ + i, kBlockQueries}, accumulate);
    }
  }

  const AmxTiles tiles_;
  const AttentionProblem<BFloat16>& p_;
  const AttentionTask& task_;
  const int64_t depth_, padded_keys_;
  const bool backward_;
  int64_t known_keys_ = 0;  // to blocks before this one
  BFloat16 *k_, *v_, *rows_, *k_columns_ = nullptr, *v_columns_ = nullptr, *rounded_ = nullptr;
  uint32_t *q_pairs_, *q_pairs_of_queries_, *score_pairs_, *grad_out_pairs_ = nullptr, *grad_out_pairs_of_queries_ = nullptr;
  float *scores_, *out_columns_, *out_, *grad_k_ = nullptr, *grad_v_ = nullptr, *grad_scores_ = nullptr, *grad_out_ = nullptr;
};

}  // namespace tandem::kernels
