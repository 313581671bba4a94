// The products of attention for any storage type, in vectors. Keys and values are read where they lie, or copied into scratch when
// the first block of queries sees them. Sums run over keys or queries, ascending.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/attention_passes.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/attention_task.h"

namespace tandem::kernels {

// In scratch of the calling thread. Rows of a head are `width` long: depth, padded with zeros. Blocks have room for whole tiles.
template <class S>
class VectorProducts {
 public:
  using T = Compute<S>;
  // Keys per block of scores in the backward pass: two blocks and what they meet of k, v and their gradients fit in the cache.
  static constexpr int64_t kChunkKeys = 86 * kTileRows;

  VectorProducts(const AttentionProblem<S>& p, const AttentionTask& task, bool backward)
      : p_(p), task_(task), width_(RoundUp(p.depth, kLanes)), k_(RowsInPlace(p.k)), v_(RowsInPlace(p.v)) {
    TakeScratch([&](Arena& arena) { Cut(backward, arena); });
  }

  int64_t width() const { return width_; }
  T* scores() const { return scores_; }            // [keys, kBlockQueries]
  T* grad_scores() const { return grad_scores_; }
  T* out() const { return out_; }                  // [kBlockQueries, width]: the output; backward the gradient of q
  const T* grad_out() const { return grad_out_; }  // [kBlockQueries, width]
  T* grad_k() const { return grad_k_; }            // [keys, width]
  T* grad_v() const { return grad_v_; }

  void LoadKeys(int64_t begin, int64_t end) {
    known_keys_ = begin;
    for (const auto& [from, to] : {std::pair(&p_.k, copied_k_), std::pair(&p_.v, copied_v_)}) {
      if (to == nullptr) continue;
      LoadHead(p_, task_.head, *from, task_.first_key + begin, end - begin, to + begin * width_);
      std::fill(to + end * width_, to + RoundUp(end, kTileRows) * width_, T(0));
    }
  }
  void LoadQueries(const QueryRows& rows, int64_t columns) {
    LoadBlock(p_.q, rows, q_);
    Vectorised([&] { TransposeRows(q_, columns, width_, width_, q_columns_, kBlockQueries); });
  }
  void LoadGradient(const QueryRows& rows, int64_t columns) {
    LoadBlock(p_.grad_output, rows, grad_out_);
    Vectorised([&] { TransposeRows(grad_out_, columns, width_, width_, grad_out_columns_, kBlockQueries); });
  }

  // scores = K Q'.
  void Scores(const ScoreBlock& block, RowPrefetch& prefetch) {
    ScoreProduct(block, p_.depth, k_, q_columns_, scores_, prefetch);
  }
  // out = scores' V.
  void Output(const ScoreBlock& block, RowPrefetch& prefetch) {
    QueryProduct(block, scores_, v_, width_, false, out_, prefetch);
  }
  // scores = K Q' and grad_scores = V dO', of the keys from `key` on.
  void BackwardScores(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    ScoreProduct(block, p_.depth, k_.From(key), q_columns_, scores_, prefetch);
    ScoreProduct(block, p_.depth, v_.From(key), grad_out_columns_, grad_scores_, prefetch);
  }
  // grad_v += scores dO, grad_k += grad_scores Q, out (+)= grad_scores' K.
  void AddGradients(const ScoreBlock& block, int64_t key, RowPrefetch& prefetch) {
    const int64_t at = key * width_, known = known_keys_ - key;
    KeyProduct(block, scores_, grad_out_, width_, known, grad_v_ + at, prefetch);
    KeyProduct(block, grad_scores_, q_, width_, known, grad_k_ + at, prefetch);
    QueryProduct(block, grad_scores_, k_.From(key), width_, key > 0, out_, prefetch);
  }
  void FinishQueryGradient(int64_t) {}

 private:
  int64_t padded_keys() const { return RoundUp(task_.num_keys, kTileRows); }
  // The head's rows where they lie, if products may read them there: in the type and width of products, and with rows behind the
  // last key for its tile.
  KeyRows<T> RowsInPlace(const TokenRows<const S>& from) const {
    if constexpr (std::is_same_v<S, T>) {
      if (width_ == p_.depth && task_.first_key + padded_keys() <= p_.num_keys) {
        return {from.data + task_.first_key * from.stride + task_.head * p_.depth, from.stride};
      }
    }
    return {};
  }
  void Cut(bool backward, Arena& arena) {
    const int64_t all_keys = padded_keys() * width_, score_keys = backward ? std::min(padded_keys(), kChunkKeys) : padded_keys();
    const int64_t scores_room = (score_keys + 1) * kBlockQueries;  // the last tile of queries reads into the next row
    const int64_t rows_room = (kBlockQueries + kTileRows) * width_;
    if (k_.data == nullptr) k_ = {copied_k_ = arena.Take<T>(all_keys), width_};
    if (v_.data == nullptr) v_ = {copied_v_ = arena.Take<T>(all_keys), width_};
    scores_ = arena.Take<T>(scores_room);
    q_ = arena.Take<T>(rows_room);
    q_columns_ = arena.Take<T>(width_ * kBlockQueries);
    out_ = arena.Take<T>(rows_room);
    if (!backward) return;
    grad_k_ = arena.Take<T>(all_keys);
    grad_v_ = arena.Take<T>(all_keys);
    grad_scores_ = arena.Take<T>(scores_room);
    grad_out_ = arena.Take<T>(rows_room);
    grad_out_columns_ = arena.Take<T>(width_ * kBlockQueries);
  }
  void LoadBlock(const TokenRows<const S>& from, const QueryRows& rows, T* to) {
    std::fill_n(to, rows.missing * width_, T(0));
    LoadHead(p_, task_.head, from, rows.token, rows.count, to + rows.missing * width_);
  }

  const AttentionProblem<S>& p_;
  const AttentionTask& task_;
  const int64_t width_;
  int64_t known_keys_ = 0;  // to blocks before this one
  KeyRows<T> k_, v_;
  T *copied_k_ = nullptr, *copied_v_ = nullptr;
  T *scores_, *q_, *q_columns_, *out_;
  T *grad_k_ = nullptr, *grad_v_ = nullptr, *grad_scores_ = nullptr, *grad_out_ = nullptr, *grad_out_columns_ = nullptr;
};

}  // namespace tandem::kernels
