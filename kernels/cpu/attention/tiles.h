// The products of attention on bf16 storage, in tiles. Probabilities and gradients of scores are
// rounded to bf16 before they meet v, k and q (as in Dao et al. 2022). All sums are f32. Sums run
// over keys or queries in ascending groups of 32. Rows of keys are read in place, except in an
// incomplete last tile; everything else is packed into panels.
// Thread rule: one thread per object, the thread that made it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention/passes.h"
#include "kernels/cpu/attention/scratch.h"
#include "kernels/cpu/attention/task.h"
#include "kernels/cpu/matmul/bf16_panels.h"
#include "kernels/cpu/matmul/bf16_tiles.h"
#include "kernels/cpu/vector/bf16_rounding.h"
#include "kernels/cpu/vector/row_prefetch.h"

namespace tandem::kernels {

// The rows of keys that tiles read. An incomplete last tile would read past the last key, into rows
// of another sequence that another thread may write. So its rows are a copy, padded with zeros; all
// other rows are read in place.
struct KeyRows {
  HeadRows<BFloat16> rows = {}, last_tile = {};
  int64_t tile_begin = 0;  // the last tile's first key; num_keys if none is copied

  HeadRows<BFloat16> From(int64_t key) const {
    return key < tile_begin ? rows.From(key) : last_tile.From(key - tile_begin);
  }
};

class TileProducts {
 public:
  using T = float;
  // Keys per block of scores in the backward pass. Small enough for f32 scores and their gradients
  // to stay in L1. Rounded scores are kept for a chunk, for the products that sum over all queries
  // of a block. Rounded gradients are kept for all keys, for the product that sums over all keys.
  static constexpr int64_t kChunkKeys = kTileUnit;
  // The backward pass stores and loads sums over queries once per block, so blocks are large. But a
  // block's gradients of scores, for all keys, must fit in L2. f32 scores cover one part of the
  // block, so that the part's queries stay in L1 beside them.
  static constexpr int64_t kMaxBlockQueries = 4 * kScoreColumns, kPartQueries = kTileUnit;
  static int64_t BlockQueries(int64_t num_keys, bool backward) {
    constexpr int64_t kMostScores = (512 << 10) / sizeof(BFloat16);
    if (!backward) return kScoreColumns;
    const int64_t most =
        kMostScores / std::max<int64_t>(1, num_keys) / kScoreColumns * kScoreColumns;
    return std::clamp(most, kScoreColumns, kMaxBlockQueries);
  }
  // Multiply-adds of one piece of arithmetic, the unit of a RowPrefetch.
  static constexpr int64_t kPiece = kTilePiece;

  static bool Takes(int64_t depth) { return UsesTiles() && depth % kTileUnit == 0; }

  TileProducts(const AttentionProblem<BFloat16>& p, const AttentionTask& task, bool backward)
      : p_(p),
        task_(task),
        depth_(p.depth),
        padded_keys_(RoundUp(task.num_keys, kTileUnit)),
        backward_(backward),
        k_{RowsInPlace(p.k, task.first_key)},
        v_{RowsInPlace(p.v, task.first_key)} {
    TakeScratch([this](Arena& arena) { Cut(arena); });
  }

  float* scores() const { return scores_; }
  // The gradient sums of the keys from `key` on. With a single block, only one chunk's sums are
  // kept, because they are complete at once.
  float* grad_k(int64_t key) const { return grad_k_ + (KeepsAllSums() ? key * depth_ : 0); }
  float* grad_v(int64_t key) const { return grad_v_ + (KeepsAllSums() ? key * depth_ : 0); }
  // Products read copies of the keys, so gradients may overwrite the keys as soon as they are
  // complete.
  static constexpr bool kCopiesKeys = true;

  void LoadKeys(int64_t begin, int64_t end) {
    known_keys_ = begin;
    CopyLastTile(p_.k, end, copied_k_);
    CopyLastTile(p_.v, end, copied_v_);
    // Packs the panels that hold one of these keys, with zeros after the last key.
    const BlockRows seen{task_.first_key, end, 0};
    Vectorised(
        [=, this, &keys = backward_ ? p_.k : p_.v, columns = backward_ ? k_columns_ : v_columns_] {
          for (int64_t j = begin / kTileUnit * kTileUnit; j < end; j += kTileUnit) {
            const HeadRows<BFloat16> group = Group(keys, seen, j);
            PackColumns(group.data, group.stride, depth_, columns + j * depth_);
          }
        });
  }
  void LoadQueries(const BlockRows& rows, int64_t columns) {
    LoadBlock(p_.q, rows, columns, q_pairs_of_queries_, q_pairs_);
  }
  void LoadGradient(const BlockRows& rows, int64_t columns) {
    LoadBlock(p_.grad_output, rows, columns, grad_out_pairs_of_queries_, grad_out_pairs_);
  }

  // dots[i] = sum over d of x[i - begin, d] y[i - begin, d] for i in [begin, end); 0 before begin.
  // REQUIRES: `end` is a multiple of kLanes.
  static void Dots(const HeadRows<BFloat16>& x, const HeadRows<BFloat16>& y, int64_t begin,
                   int64_t end, int64_t depth, float* dots) {
    Rounding([=](auto, auto round) {
      RowDots(begin, end, dots, [=](int64_t row, float* lanes) {
        const BFloat16 *x_row = x.From(row).data, *y_row = y.From(row).data;
        for (int64_t d = 0; d < depth; d += 2 * kLanes)
          round.AddProducts(x_row + d, y_row + d, lanes);
      });
    });
  }

  void Scores(const ScoreBlock& block, RowPrefetch& prefetch) {
    ScoresInto(block, k_, 0, q_pairs_, scores_, prefetch);
  }
  void Output(const ScoreBlock& block, RowPrefetch& prefetch) {
    Round(block);
    QueriesInto(block, v_columns_, score_pairs_, prefetch);
  }
  // Scores of a part of a block. The part's queries begin with the block's `column`.
  void BackwardScores(const ScoreBlock& part, int64_t column, int64_t key, RowPrefetch& prefetch) {
    const int64_t at = column / kTileColumns * query_panel();
    ScoresInto(part, k_, key, q_pairs_ + at, scores_, prefetch);
    ScoresInto(part, v_, key, grad_out_pairs_ + at, grad_scores_, prefetch);
  }
  // Forms the gradients of scores and keeps them, rounded, for the products.
  void FormGradients(const ScoreBlock& part, const GradientTerms<float>& terms, int64_t column,
                     int64_t key) {
    RoundGradientsOfScores(part, terms, key, scores_, grad_scores_, kChunkKeys,
                           Padded(part.columns),
                           {rounded_ + column * kChunkKeys, rounded_grads_ + column * kChunkKeys,
                            ScorePairs(column) + key / 2 * kTileColumns, score_panel()});
  }
  void AddGradients(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    KeysInto(block, key, rounded_, grad_out_pairs_of_queries_, grad_v(key), prefetch);
    KeysInto(block, key, rounded_grads_, q_pairs_of_queries_, grad_k(key), prefetch);
  }
  void FinishQueryGradient(const ScoreBlock& part, int64_t column, RowPrefetch& prefetch) {
    QueriesInto(part, k_columns_, ScorePairs(column), prefetch);
  }
  // Stores rows of a gradient, each times `factor`.
  void Save(const float* from, int64_t rows, float factor, BFloat16* to, int64_t stride) const {
    RoundRows(from, rows, depth_, factor, to, stride);
  }
  // Stores queries [begin, end), query i times factors[i]: of the output, or of q's gradient in the
  // backward pass.
  void SaveQueries(int64_t begin, int64_t end, const float* factors, BFloat16* to,
                   int64_t stride) const {
    RoundTransposed(out_columns_, depth_, kScoreColumns, begin, end, factors, to, stride);
  }

 private:
  bool KeepsAllSums() const { return task_.NumBlocks() > 1; }
  static int64_t Padded(int64_t count) { return RoundUp(count, kTileUnit); }
  // The words between panels: of a block's columns, of its rows, and of scores.
  int64_t query_panel() const { return depth_ / 2 * kTileColumns; }
  int64_t row_panel() const { return task_.block_queries / 2 * kTileColumns; }
  int64_t score_panel() const { return padded_keys_ / 2 * kTileColumns; }
  uint32_t* ScorePairs(int64_t column) const {
    return score_pairs_ + column / kTileColumns * score_panel();
  }

  void Cut(Arena& arena) {
    const int64_t block = task_.block_queries * depth_, keys = padded_keys_ * depth_;
    // A whole tile of vectors is zeroed past the last key, so the rows need room for it.
    const int64_t score_room =
        RoundUp(backward_ ? std::min(padded_keys_, kChunkKeys) : padded_keys_, kTileRows) *
        kScoreRow;
    copied_k_ = TakeLastTile(arena, k_);
    copied_v_ = TakeLastTile(arena, v_);
    rows_ = arena.Take<BFloat16>(kTileUnit * depth_);
    q_pairs_ = arena.Take<uint32_t>(block / 2);
    q_pairs_of_queries_ = arena.Take<uint32_t>(block / 2);
    scores_ = arena.Take<float>(score_room);
    score_pairs_ = arena.Take<uint32_t>(padded_keys_ / 2 * task_.block_queries);
    out_columns_ = arena.Take<float>(kScoreColumns * depth_);
    if (!backward_) {
      v_columns_ = arena.Take<BFloat16>(keys);
      return;
    }
    k_columns_ = arena.Take<BFloat16>(keys);
    const int64_t sums = KeepsAllSums() ? keys : kChunkKeys * depth_;
    grad_k_ = arena.Take<float>(sums);
    grad_v_ = arena.Take<float>(sums);
    grad_scores_ = scores_ + kPartQueries;  // side by side in the same rows
    rounded_ = arena.Take<BFloat16>(kChunkKeys * task_.block_queries);
    rounded_grads_ = arena.Take<BFloat16>(kChunkKeys * task_.block_queries);
    grad_out_pairs_ = arena.Take<uint32_t>(block / 2);
    grad_out_pairs_of_queries_ = arena.Take<uint32_t>(block / 2);
  }

  HeadRows<BFloat16> RowsInPlace(const TokenRows<const BFloat16>& from, int64_t token) const {
    return {from.At(token, task_.head, depth_), from.stride};
  }
  // Takes room for the last tile's rows, if it is incomplete.
  BFloat16* TakeLastTile(Arena& arena, KeyRows& keys) const {
    keys.tile_begin = task_.num_keys / kTileUnit * kTileUnit;
    BFloat16* copy = arena.Take<BFloat16>((padded_keys_ - keys.tile_begin) * depth_);
    keys.last_tile = {copy, depth_};
    return copy;
  }
  // Copies the keys before `end` that lie in the last tile, if it is copied, and zeros after them.
  void CopyLastTile(const TokenRows<const BFloat16>& from, int64_t end, BFloat16* to) const {
    const int64_t first = k_.tile_begin;
    if (end > first) CopyRows(from, {task_.first_key + first, end - first, 0}, 0, to);
  }
  // Copies a group of a head's rows from row `first` on, with zeros for absent rows.
  void CopyRows(const TokenRows<const BFloat16>& from, const BlockRows& rows, int64_t first,
                BFloat16* to) const {
    const HeadRows<BFloat16> head = RowsInPlace(from, rows.token);
    for (int64_t r = first - rows.missing, end = r + kTileUnit; r < end; ++r, to += depth_) {
      if (r >= 0 && r < rows.count)
        std::copy_n(head.From(r).data, depth_, to);
      else
        std::fill_n(to, depth_, BFloat16{0});
    }
  }
  // The group in place, or its copy if it is incomplete.
  HeadRows<BFloat16> Group(const TokenRows<const BFloat16>& from, const BlockRows& rows,
                           int64_t first) const {
    const HeadRows<BFloat16> head = RowsInPlace(from, rows.token);
    const int64_t begin = first - rows.missing, end = begin + kTileUnit;
    if (begin >= 0 && end <= rows.count) return head.From(begin);
    CopyRows(from, rows, first, rows_);
    return {rows_, depth_};
  }
  // Packs a block's rows as pairs of neighbouring elements, a column per query. The backward pass
  // also packs pairs of queries.
  void LoadBlock(const TokenRows<const BFloat16>& from, const BlockRows& rows, int64_t columns,
                 uint32_t* of_queries, uint32_t* pairs) {
    Vectorised([=, this] {
      for (int64_t c = 0; c < columns; c += kTileUnit) {
        const HeadRows<BFloat16> group = Group(from, rows, c);
        PackColumnPairs(group.data, group.stride, depth_, pairs + c / kTileColumns * query_panel());
        if (backward_)
          PackRowPairs(group.data, group.stride, depth_, of_queries + c / 2 * kTileColumns,
                       row_panel());
      }
    });
  }
  // Rounds a block of scores to pairs of keys. Scores that no query of a vector sees become 0.
  void Round(const ScoreBlock& block) const {
    for (int64_t c = 0; c < Padded(block.columns); c += kLanes) {
      const int64_t seen = c < block.columns ? block.SeenByAny(c, kLanes) : 0;
      RoundColumns(scores_ + c, kScoreRow, seen, Padded(block.keys), ScorePairs(c));
    }
  }

  // The products below run in strips of 32, each over the visible keys or queries.
  // to [keys, queries] = rows [keys, depth], from `key` on, times columns, given in pairs.
  void ScoresInto(const ScoreBlock& block, const KeyRows& keys, int64_t key, const uint32_t* pairs,
                  float* to, RowPrefetch& prefetch) const {
    for (int64_t j = 0; j < block.keys; j += kTileUnit) {
      const int64_t first = block.FirstQuery(j) / kTileUnit * kTileUnit;
      const HeadRows<BFloat16> rows = keys.From(key + j);
      tiles_.Product(
          kTileUnit, Padded(block.columns) - first, depth_,
          {rows.data, rows.stride, kTileDepths, pairs + first / kTileColumns * query_panel(),
           query_panel(), to + j * kScoreRow + first, kScoreRow},
          false, prefetch);
    }
  }
  // to [keys, depth] += the rounded scores of keys from `key` on times rows [queries, depth], given
  // in pairs of queries. Strips with keys that no earlier block saw overwrite `to`.
  void KeysInto(const ScoreBlock& block, int64_t key, const BFloat16* rounded,
                const uint32_t* pairs, float* to, RowPrefetch& prefetch) const {
    for (int64_t j = 0; j < block.keys; j += kTileUnit) {
      const int64_t first = block.FirstQuery(j) / kTileUnit * kTileUnit;
      tiles_.Product(
          kTileUnit, depth_, Padded(block.columns) - first,
          {rounded + first * kChunkKeys + j * kTileDepths, kTileDepths, kChunkKeys * kTileDepths,
           pairs + first / 2 * kTileColumns, row_panel(), to + j * depth_, depth_},
          key + j < known_keys_, prefetch);
    }
  }
  // out_columns_ [depth, queries] = columns [depth, keys] times the scores, given in pairs.
  void QueriesInto(const ScoreBlock& block, const BFloat16* columns, const uint32_t* scores,
                   RowPrefetch& prefetch) const {
    for (int64_t i = 0; i < block.columns; i += kTileUnit) {
      const int64_t seen = std::clamp<int64_t>(block.position + i + kTileUnit, 0, block.keys);
      tiles_.Product(
          depth_, kTileUnit, Padded(seen),
          {columns, kTileDepths, kTileDepths * depth_, scores + i / kTileColumns * score_panel(),
           score_panel(), out_columns_ + i, kScoreColumns},
          false, prefetch);
    }
  }

  const TileState tiles_;
  const AttentionProblem<BFloat16>& p_;
  const AttentionTask& task_;
  const int64_t depth_, padded_keys_;
  const bool backward_;
  int64_t known_keys_ = 0;  // keys that earlier blocks have seen
  KeyRows k_, v_;
  BFloat16 *copied_k_, *copied_v_, *rows_, *k_columns_ = nullptr, *v_columns_ = nullptr;
  BFloat16 *rounded_ = nullptr, *rounded_grads_ = nullptr;
  uint32_t *q_pairs_, *q_pairs_of_queries_, *score_pairs_, *grad_out_pairs_ = nullptr,
                                                           *grad_out_pairs_of_queries_ = nullptr;
  float *scores_, *out_columns_, *grad_k_ = nullptr, *grad_v_ = nullptr, *grad_scores_ = nullptr;
};

}  // namespace tandem::kernels
