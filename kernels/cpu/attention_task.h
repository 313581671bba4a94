// Attention of one (sequence, head), forward and backward: a walk over blocks of queries, in scratch of the calling thread. Keys and
// values are copied into scratch when the first block sees them; what the next block reads and this one writes is fetched while
// this one computes. Scores exist for one block at a time and stay in the cache. Sums run over keys or queries, ascending.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_passes.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/storage.h"

namespace tandem::kernels {

// Keys per block of scores in the backward pass: two blocks of scores and what they meet of k, v and their gradients fit in the cache.
inline constexpr int64_t kBlockKeys = 86 * kTileRows;

// A [T, H, D] array whose tokens lie `stride` elements apart and heads D.
template <class S>
struct TokenRows {
  S* data = nullptr;
  int64_t stride = 0;
};

// The arguments in one storage type.
template <class S>
struct AttentionProblem {
  using T = Compute<S>;
  TokenRows<const S> q, k, v;
  TokenRows<S> output;
  T* log_sum_exp = nullptr;  // forward: may be null
  TokenRows<const S> grad_output;
  TokenRows<S> grad_q, grad_k, grad_v;
  int64_t num_heads = 0, depth = 0;
  bool causal = true;
  T scale = 1;
  const int64_t *offsets = nullptr, *row_index = nullptr;
  int64_t max_length = 0;
  uint32_t drop_threshold = 0;
  T keep_scale = 1;
  PhiloxKeys keys;
  uint64_t step = 0;
};

// One sequence and head. Its queries are the last `num_queries` tokens of `num_keys`. They come in blocks of kBlockQueries; what is
// missing of the first block is missing before the first query, where the fewest keys are in sight.
struct AttentionTask {
  int64_t head = 0, first_query = 0, num_queries = 0, first_key = 0, num_keys = 0;

  int64_t NumBlocks() const { return (num_queries + kBlockQueries - 1) / kBlockQueries; }
  // The first query of the block, whole vectors from its end; negative for the first block if its first vector is not whole.
  int64_t BlockBegin(int64_t block) const {
    return num_queries - std::min((NumBlocks() - block) * kBlockQueries, RoundUp(num_queries, kLanes));
  }
  int64_t Position(int64_t block) const { return num_keys - num_queries + BlockBegin(block); }
  // Keys that some query of the block sees: [0, KeysInSight).
  int64_t KeysInSight(int64_t block, bool causal) const {
    if (block < 0) return 0;
    return causal ? Position(block + 1) : num_keys;
  }
  // The block against keys [key_begin, key_end).
  ScoreBlock Scores(int64_t block, bool causal, int64_t key_begin, int64_t key_end) const {
    const int64_t keys = key_end - key_begin;
    return {BlockBegin(block + 1) - BlockBegin(block), keys, causal ? Position(block) - key_begin : keys};
  }
};

// Queries of one block: `count` of them from `token` on, in the last rows of the block's `missing` + count.
struct QueryRows {
  int64_t token, count, missing;

  QueryRows(const AttentionTask& task, int64_t block)
      : token(task.first_query + std::max<int64_t>(0, task.BlockBegin(block))),
        count(task.BlockBegin(block + 1) - std::max<int64_t>(0, task.BlockBegin(block))),
        missing(std::max<int64_t>(0, -task.BlockBegin(block))) {}
};

// Cuts scratch into arrays; a dry run without memory counts what they need.
template <class T>
class Arena {
 public:
  explicit Arena(T* memory = nullptr) : memory_(memory) {}
  T* Take(int64_t count) {
    T* array = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundUp(count, kLanes);
    return array;
  }
  int64_t used() const { return used_; }

 private:
  T* memory_;
  int64_t used_ = 0;
};

// Scratch of one task. Rows of a head are `width` long: depth, padded with zeros. Blocks have room for whole tiles.
template <class T>
struct AttentionScratch {
  int64_t width;
  T *k, *v, *scores, *q, *q_columns, *out;                      // out: forward the output, backward also the gradient of q
  T *grad_k, *grad_v, *grad_scores, *grad_out, *grad_out_columns;  // backward only

  AttentionScratch(const AttentionTask& task, int64_t depth, bool backward, Arena<T>& arena) : width(RoundUp(depth, kLanes)) {
    const int64_t keys = RoundUp(task.num_keys, kTileRows), all_keys = keys * width;
    const int64_t score_keys = backward ? std::min(keys, kBlockKeys) : keys;
    const int64_t scores_room = (score_keys + 1) * kBlockQueries;  // the last tile of queries reads into the next row
    const int64_t rows_room = (kBlockQueries + kTileRows) * width;
    k = arena.Take(all_keys);
    v = arena.Take(all_keys);
    scores = arena.Take(scores_room);
    q = arena.Take(rows_room);
    q_columns = arena.Take(width * kBlockQueries);
    out = arena.Take(rows_room);
    if (!backward) return;
    grad_k = arena.Take(all_keys);
    grad_v = arena.Take(all_keys);
    grad_scores = arena.Take(scores_room);
    grad_out = arena.Take(rows_room);
    grad_out_columns = arena.Take(width * kBlockQueries);
  }

  static AttentionScratch Take(const AttentionTask& task, int64_t depth, bool backward) {
    Arena<T> dry;
    AttentionScratch(task, depth, backward, dry);
    Arena<T> arena(Scratch<T>(ScratchSlot::TASK_A, dry.used()));
    return AttentionScratch(task, depth, backward, arena);
  }
};

// The walk over the blocks of one task. `next` is the task that this thread will probably run next; may have no queries.
template <class S>
class AttentionWalk {
 public:
  using T = Compute<S>;
  AttentionWalk(const AttentionProblem<S>& p, const AttentionTask& task, const AttentionTask& next, bool backward)
      : p_(p), task_(task), next_(next), backward_(backward), a_(AttentionScratch<T>::Take(task, p.depth, backward)),
        score_scale_(p.scale * static_cast<T>(kLog2E)) {
    if (p.drop_threshold > 0) PrepareMask();
  }

  void Forward() {
    for (int64_t block = 0; block < task_.NumBlocks(); ++block) {
      const ScoreBlock scores = Begin(block);
      const QueryRows rows(task_, block);
      Expect(p_.output, rows.token, rows.count, true);
      T log_sums[kBlockQueries], factors[kBlockQueries];
      ScoreProduct(scores, p_.depth, a_.k, a_.width, a_.q_columns, a_.scores, prefetch_);
      ExponentiateScores(scores, mask_, a_.scores, log_sums, factors);
      for (T& factor : factors) factor *= p_.keep_scale;
      QueryProduct(scores, a_.scores, a_.v, a_.width, false, a_.out, prefetch_);
      Save(a_.out + rows.missing * a_.width, rows.count, factors + rows.missing, 1, p_.output, rows.token);
      if (p_.log_sum_exp == nullptr) continue;
      T* saved = p_.log_sum_exp + rows.token * p_.num_heads + task_.head;
      for (int64_t i = 0; i < rows.count; ++i) saved[i * p_.num_heads] = log_sums[rows.missing + i];
    }
  }

  // With P the probabilities, m the dropout mask and delta[i] = sum_d output grad_output: dV = (m P)' dO, dS = P (m (dO V') - delta),
  // dQ = scale dS K, dK = scale dS' Q. P comes from the saved log-sum-exp.
  void Backward() {
    const int64_t all_keys = RoundUp(task_.num_keys, kTileRows) * a_.width;
    std::fill_n(a_.grad_k, all_keys, T(0));
    std::fill_n(a_.grad_v, all_keys, T(0));
    for (int64_t block = 0; block < task_.NumBlocks(); ++block) {
      const ScoreBlock scores = Begin(block);
      const QueryRows rows(task_, block);
      Expect(p_.grad_q, rows.token, rows.count, true);
      if (block + 1 == task_.NumBlocks()) {
        Expect(p_.grad_k, task_.first_key, task_.num_keys, true);
        Expect(p_.grad_v, task_.first_key, task_.num_keys, true);
      }
      T log_sums[kBlockQueries] = {}, delta[kBlockQueries];
      const T* saved = p_.log_sum_exp + rows.token * p_.num_heads + task_.head;
      for (int64_t i = 0; i < rows.count; ++i) log_sums[rows.missing + i] = saved[i * p_.num_heads];
      LoadQueries(p_.grad_output, rows, a_.grad_out);
      const S* output = p_.output.data + rows.token * p_.output.stride + task_.head * p_.depth;
      Vectorised([&] {
        TransposeRows(a_.grad_out, scores.columns, a_.width, a_.width, T(1), a_.grad_out_columns, kBlockQueries);
        RowDots(output, p_.output.stride, a_.grad_out, rows.missing, scores.columns, p_.depth, a_.width, delta);
      });
      for (int64_t key = 0; key < scores.keys; key += kBlockKeys) {
        BackwardBlock(task_.Scores(block, p_.causal, key, std::min(scores.keys, key + kBlockKeys)), key, log_sums, delta);
      }
      Save(a_.out + rows.missing * a_.width, rows.count, &p_.scale, 0, p_.grad_q, rows.token);
    }
    Save(a_.grad_k, task_.num_keys, &p_.scale, 0, p_.grad_k, task_.first_key);
    Save(a_.grad_v, task_.num_keys, &p_.keep_scale, 0, p_.grad_v, task_.first_key);
  }

 private:
  // Loads what the block is the first to need, and lists what the block after it will.
  ScoreBlock Begin(int64_t block) {
    const int64_t loaded = task_.KeysInSight(block - 1, p_.causal), keys = task_.KeysInSight(block, p_.causal);
    const ScoreBlock scores = task_.Scores(block, p_.causal, 0, keys);
    LoadKeys(p_.k, loaded, keys, a_.k);
    LoadKeys(p_.v, loaded, keys, a_.v);
    LoadQueries(p_.q, QueryRows(task_, block), a_.q);
    Vectorised([&] { TransposeRows(a_.q, scores.columns, a_.width, a_.width, score_scale_, a_.q_columns, kBlockQueries); });
    if (p_.drop_threshold > 0) StartMask(block);
    prefetch_ = RowPrefetch();
    const bool last = block + 1 == task_.NumBlocks();
    if (!last) ExpectInputs(task_, block + 1);
    else if (next_.num_queries > 0) ExpectInputs(next_, 0);
    return scores;
  }

  void ExpectInputs(const AttentionTask& task, int64_t block) {
    const int64_t seen = task.KeysInSight(block - 1, p_.causal), keys = task.KeysInSight(block, p_.causal) - seen;
    const QueryRows rows(task, block);
    Expect(p_.k, task.first_key + seen, keys, false, task.head);
    Expect(p_.q, rows.token, rows.count, false, task.head);
    Expect(p_.v, task.first_key + seen, keys, false, task.head);
    if (!backward_) return;
    Expect(p_.grad_output, rows.token, rows.count, false, task.head);
    Expect(p_.output, rows.token, rows.count, false, task.head);
  }

  template <class Element>
  void Expect(const TokenRows<Element>& rows, int64_t token, int64_t count, bool write, int64_t head) {
    prefetch_.Add(rows.data + token * rows.stride + head * p_.depth, rows.stride * static_cast<int64_t>(sizeof(S)), count,
                  p_.depth * static_cast<int64_t>(sizeof(S)), write);
  }
  template <class Element>
  void Expect(const TokenRows<Element>& rows, int64_t token, int64_t count, bool write) {
    Expect(rows, token, count, write, task_.head);
  }

  void Load(const TokenRows<const S>& from, int64_t token, int64_t rows, T* to) {
    Vectorised([=, first = from.data + token * from.stride + task_.head * p_.depth, stride = from.stride, depth = p_.depth,
                width = a_.width] { LoadRows(first, stride, rows, depth, width, to); });
  }
  // Keys [begin, end) into rows of `to`, and zeros up to a whole tile.
  void LoadKeys(const TokenRows<const S>& from, int64_t begin, int64_t end, T* to) {
    Load(from, task_.first_key + begin, end - begin, to + begin * a_.width);
    std::fill(to + end * a_.width, to + RoundUp(end, kTileRows) * a_.width, T(0));
  }
  void LoadQueries(const TokenRows<const S>& from, const QueryRows& rows, T* to) {
    std::fill_n(to, rows.missing * a_.width, T(0));
    Load(from, rows.token, rows.count, to + rows.missing * a_.width);
  }

  // Row i times factors[i * factor_stride].
  void Save(const T* from, int64_t rows, const T* factors, int64_t factor_stride, const TokenRows<S>& to, int64_t token) {
    Vectorised([=, first = to.data + token * to.stride + task_.head * p_.depth, stride = to.stride, depth = p_.depth,
                width = a_.width] { StoreRows(from, rows, depth, width, factors, factor_stride, first, stride); });
  }

  void BackwardBlock(const ScoreBlock& block, int64_t key, const T* log_sums, const T* delta) {
    const int64_t at = key * a_.width;
    ScoreProduct(block, p_.depth, a_.k + at, a_.width, a_.q_columns, a_.scores, prefetch_);
    ScoreProduct(block, p_.depth, a_.v + at, a_.width, a_.grad_out_columns, a_.grad_scores, prefetch_);
    GradientsOfScores(block, mask_, key, p_.keep_scale, log_sums, delta, a_.scores, a_.grad_scores);
    KeyProduct(block, a_.scores, a_.grad_out, a_.width, a_.grad_v + at, prefetch_);
    KeyProduct(block, a_.grad_scores, a_.q, a_.width, a_.grad_k + at, prefetch_);
    QueryProduct(block, a_.grad_scores, a_.k + at, a_.width, key > 0, a_.out, prefetch_);
  }

  void PrepareMask() {
    int64_t* places = Scratch<int64_t>(ScratchSlot::TASK_B, task_.num_keys);
    mask_.contiguous = true;
    for (int64_t j = 0; j < task_.num_keys; ++j) {
      places[j] = p_.row_index[task_.first_key + j] % p_.max_length;
      mask_.contiguous &= j == 0 || places[j] == places[j - 1] + 1;
    }
    mask_.keys = p_.keys;
    mask_.step = p_.step;
    mask_.limit = DropLimit(p_.drop_threshold);
    mask_.places = places;
    mask_.room = Scratch<uint32_t>(ScratchSlot::TASK_C, WordColumnsRoom(task_.num_keys));
  }

  void StartMask(int64_t block) {
    for (int64_t i = 0; i < kBlockQueries; ++i) {
      const int64_t token = task_.first_query + std::clamp<int64_t>(task_.BlockBegin(block) + i, 0, task_.num_queries - 1);
      mask_.base[i] = (static_cast<uint64_t>(p_.row_index[token]) * static_cast<uint64_t>(p_.num_heads) +
                       static_cast<uint64_t>(task_.head)) * static_cast<uint64_t>(p_.max_length);
    }
  }

  const AttentionProblem<S>& p_;
  const AttentionTask &task_, &next_;
  const bool backward_;
  const AttentionScratch<T> a_;
  const T score_scale_;
  ColumnMask mask_;
  RowPrefetch prefetch_;
};

}  // namespace tandem::kernels
