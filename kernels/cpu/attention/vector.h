// The products of attention for any storage type, in vectors. Rows of a head are read in place, or
// copied into scratch; keys and values are copied when the first block of queries sees them. Rows
// of other sequences are never read. Sums run over keys or queries in ascending order.
// Thread rule: one thread per object, the thread that made it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/attention/passes.h"
#include "kernels/cpu/attention/scratch.h"
#include "kernels/cpu/attention/task.h"

namespace tandem::kernels {

// Uses the calling thread's scratch. Rows of a head are `width` elements long: depth, padded with
// zeros. Blocks have room for whole tiles.
template <class S>
class VectorProducts {
 public:
  using T = Compute<S>;
  // Keys per block of scores in the backward pass. Small enough for each score to stay in a near
  // cache until it becomes a gradient. Gradients are kept for the product that sums over all keys.
  static constexpr int64_t kChunkKeys = 16 * kTileRows;
  // A block is a single part: every tile of keys reads the block's rows, which stay in L1.
  static constexpr int64_t kMaxBlockQueries = kScoreColumns, kPartQueries = kScoreColumns;
  static int64_t BlockQueries(int64_t, bool) { return kMaxBlockQueries; }
  // Multiply-adds of one piece of arithmetic, the unit of a RowPrefetch.
  static constexpr int64_t kPiece = kSmallPiece;

  VectorProducts(const AttentionProblem<S>& p, const AttentionTask& task, bool backward)
      : p_(p),
        task_(task),
        width_(RoundUp(p.depth, kLanes)),
        k_(RowsInPlace(p.k, task.first_key)),
        v_(RowsInPlace(p.v, task.first_key)) {
    TakeScratch([&](Arena& arena) { Cut(backward, arena); });
  }

  T* scores() const { return scores_; }                            // [keys, kScoreRow]
  T* grad_k(int64_t key) const { return grad_k_ + key * width_; }  // [keys, width], from `key` on
  T* grad_v(int64_t key) const { return grad_v_ + key * width_; }
  static constexpr bool kCopiesKeys = false;  // q's gradient reads the keys, perhaps in place

  void LoadKeys(int64_t begin, int64_t end) {
    known_keys_ = begin;
    CopyKeys(p_.k, begin, end, copied_k_);
    CopyKeys(p_.v, begin, end, copied_v_);
  }
  void LoadQueries(const BlockRows& rows, int64_t columns) {
    q_ = LoadBlock(p_.q, rows, columns, copied_q_, q_columns_);
  }
  void LoadGradient(const BlockRows& rows, int64_t columns) {
    grad_out_ = LoadBlock(p_.grad_output, rows, columns, copied_grad_out_, grad_out_columns_);
  }

  // dots[i] = sum over d of x[i - begin, d] y[i - begin, d] for i in [begin, end); 0 before begin.
  // REQUIRES: `end` is a multiple of kLanes.
  static void Dots(const HeadRows<S>& x, const HeadRows<S>& y, int64_t begin, int64_t end,
                   int64_t depth, T* dots) {
    Vectorised([=, whole = depth / kLanes * kLanes] {
      RowDots(begin, end, dots, [=](int64_t row, T* lanes) {
        const S *x_row = x.From(row).data, *y_row = y.From(row).data;
        for (int64_t d = 0; d < whole; d += kLanes) {
          for (int l = 0; l < kLanes; ++l)
            lanes[l] = Fma(static_cast<T>(Load(x_row[d + l])), static_cast<T>(Load(y_row[d + l])),
                           lanes[l]);
        }
        for (int64_t d = whole; d < depth; ++d) {
          lanes[d - whole] =
              Fma(static_cast<T>(Load(x_row[d])), static_cast<T>(Load(y_row[d])), lanes[d - whole]);
        }
      });
    });
  }

  // scores = K Q'.
  void Scores(const ScoreBlock& block, RowPrefetch& prefetch) {
    ScoreProduct(block, p_.depth, k_, q_columns_, scores_, prefetch);
  }
  // out = scores' V.
  void Output(const ScoreBlock& block, RowPrefetch& prefetch) {
    QueryProduct(block, scores_, v_, width_, out_, prefetch);
  }
  // scores = K Q' and grad_scores = V dO', for the keys from `key` on.
  void BackwardScores(const ScoreBlock& block, int64_t, int64_t key, RowPrefetch& prefetch) {
    ScoreProduct(block, p_.depth, k_.From(key), q_columns_, scores_, prefetch);
    ScoreProduct(block, p_.depth, v_.From(key), grad_out_columns_, grad_scores(key), prefetch);
  }
  void FormGradients(const ScoreBlock& block, const GradientTerms<T>& terms, int64_t, int64_t key) {
    GradientsOfScores(block, terms, key, scores_, grad_scores(key));
  }
  // grad_v += scores dO, grad_k += grad_scores Q.
  void AddGradients(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    const int64_t at = key * width_, known = known_keys_ - key;
    KeyProduct(block, scores_, grad_out_, width_, known, grad_v_ + at, prefetch);
    KeyProduct(block, grad_scores(key), q_, width_, known, grad_k_ + at, prefetch);
  }
  // out = grad_scores' K, over all keys of the block.
  void FinishQueryGradient(const ScoreBlock& block, int64_t, RowPrefetch& prefetch) {
    QueryProduct(block, grad_scores_, k_, width_, out_, prefetch);
  }
  // Stores rows of a gradient, each times `factor`.
  void Save(const T* from, int64_t rows, T factor, S* to, int64_t stride) const {
    Store(from, rows, &factor, 0, to, stride);
  }
  // Stores queries [begin, end), query i times factors[i]: of the output, or of q's gradient in the
  // backward pass.
  void SaveQueries(int64_t begin, int64_t end, const T* factors, S* to, int64_t stride) const {
    Store(out_ + begin * width_, end - begin, factors + begin, 1, to, stride);
  }

 private:
  void Store(const T* from, int64_t rows, const T* factors, int64_t factor_stride, S* to,
             int64_t stride) const {
    Vectorised([=, depth = p_.depth, width = width_] {
      StoreRows(from, rows, depth, width, factors, factor_stride, to, stride);
    });
  }
  T* grad_scores(int64_t key) const { return grad_scores_ + key * kScoreRow; }  // from `key` on
  int64_t padded_keys() const { return RoundUp(task_.num_keys, kTileRows); }
  // The head's rows in place, if they have the products' type and width; else none.
  HeadRows<T> RowsInPlace(const TokenRows<const S>& from, int64_t token) const {
    if constexpr (std::is_same_v<S, T>) {
      if (width_ == p_.depth) return {from.At(token, task_.head, p_.depth), from.stride};
    }
    return {};
  }
  // Copies keys [begin, end), unless they are read in place.
  void CopyKeys(const TokenRows<const S>& from, int64_t begin, int64_t end, T* to) const {
    if (to != nullptr)
      LoadHead(p_, task_.head, from, task_.first_key + begin, end - begin, to + begin * width_);
  }
  void Cut(bool backward, Arena& arena) {
    const int64_t all_keys = padded_keys() * width_;
    const int64_t all_scores = padded_keys() * kScoreRow;
    const int64_t chunk_scores = std::min(padded_keys(), kChunkKeys) * kScoreRow;
    const int64_t rows_room = kScoreColumns * width_;
    copied_k_ = TakeKeys(arena, k_);
    copied_v_ = TakeKeys(arena, v_);
    scores_ = arena.Take<T>(backward ? chunk_scores : all_scores);
    copied_q_ = arena.Take<T>(rows_room);
    q_columns_ = arena.Take<T>(width_ * kScoreColumns);
    out_ = arena.Take<T>(rows_room);
    if (!backward) return;
    grad_k_ = arena.Take<T>(all_keys);
    grad_v_ = arena.Take<T>(all_keys);
    grad_scores_ = arena.Take<T>(all_scores);
    copied_grad_out_ = arena.Take<T>(rows_room);
    grad_out_columns_ = arena.Take<T>(width_ * kScoreColumns);
  }
  // Takes room for copies of the keys, unless they are read in place.
  T* TakeKeys(Arena& arena, HeadRows<T>& keys) const {
    if (keys.data != nullptr) return nullptr;
    T* copy = arena.Take<T>(task_.num_keys * width_);
    keys = {copy, width_};
    return copy;
  }
  // Loads a block's rows, with zeros for missing rows, and their transpose.
  HeadRows<T> LoadBlock(const TokenRows<const S>& from, const BlockRows& rows, int64_t columns,
                        T* copy, T* transposed) {
    HeadRows<T> block = rows.missing == 0 ? RowsInPlace(from, rows.token) : HeadRows<T>();
    if (block.data == nullptr) {
      block = {copy, width_};
      std::fill_n(copy, rows.missing * width_, T(0));
      LoadHead(p_, task_.head, from, rows.token, rows.count, copy + rows.missing * width_);
    }
    Vectorised([=, width = width_] {
      TransposeRows(block.data, columns, width, block.stride, transposed, kScoreColumns);
    });
    return block;
  }

  const AttentionProblem<S>& p_;
  const AttentionTask& task_;
  const int64_t width_;
  int64_t known_keys_ = 0;  // keys that earlier blocks have seen
  HeadRows<T> k_, v_, q_, grad_out_;
  T *copied_k_, *copied_v_, *copied_q_, *copied_grad_out_ = nullptr;
  T *scores_, *q_columns_, *out_;
  T *grad_k_ = nullptr, *grad_v_ = nullptr, *grad_scores_ = nullptr, *grad_out_columns_ = nullptr;
};

}  // namespace tandem::kernels
