// Attention of one (sequence, head), forward and backward: a walk over blocks of queries, in the
// calling thread's scratch. While a task computes, it prefetches the memory that it will write and
// that the next task reads. Scores exist for one block at a time and stay in the cache. `Products`
// (vector.h, tiles.h) holds the scratch and multiplies.
// Thread rule: one thread per object, the thread that made it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention/passes.h"
#include "kernels/cpu/attention/task.h"
#include "kernels/cpu/vector/scratch.h"

namespace tandem::kernels {

// The walk over the blocks of one task. `next` is the task that this thread probably runs next; it
// may have no queries.
template <class S, class Products>
class AttentionWalk {
 public:
  using T = Compute<S>;
  AttentionWalk(const AttentionProblem<S>& p, const AttentionTask& task, const AttentionTask& next,
                bool backward)
      : p_(p),
        task_(task),
        next_(next),
        backward_(backward),
        a_(p, task, backward),
        score_scale_(p.scale * static_cast<T>(kLog2E)) {
    if (p.drop_threshold > 0) PrepareMask();
  }

  void Forward() {
    for (int64_t block = 0; block < task_.NumBlocks(); ++block) {
      const ScoreBlock scores = Begin(block);
      const BlockRows rows = task_.Queries(block);
      T log_sums[kScoreColumns], factors[kScoreColumns];
      a_.Scores(scores, prefetch_);
      ExponentiateScores(scores, score_scale_, mask_, a_.scores(), log_sums, factors);
      for (T& factor : factors) factor *= p_.keep_scale;
      a_.Output(scores, prefetch_);
      SaveQueries(rows.missing, scores.columns, factors, p_.output, rows.token);
      if (p_.log_sum_exp == nullptr) continue;
      T* saved = p_.log_sum_exp + rows.token * p_.num_heads + task_.head;
      for (int64_t i = 0; i < rows.count; ++i) saved[i * p_.num_heads] = log_sums[rows.missing + i];
    }
  }

  // Let P be the probabilities, m the dropout mask and delta[i] = sum_d output grad_output. Then
  // dV = (m P)' dO, dS = P (m (dO V') - delta), dQ = scale dS K, dK = scale dS' Q.
  // P comes from the saved log-sum-exp.
  void Backward() {
    for (int64_t block = 0; block < task_.NumBlocks(); ++block) {
      const ScoreBlock scores = Begin(block);
      const BlockRows rows = task_.Queries(block);
      T log_sums[Products::kMaxBlockQueries] = {}, delta[Products::kMaxBlockQueries];
      const T* saved = p_.log_sum_exp + rows.token * p_.num_heads + task_.head;
      for (int64_t i = 0; i < rows.count; ++i) log_sums[rows.missing + i] = saved[i * p_.num_heads];
      a_.LoadGradient(rows, scores.columns);
      const HeadRows<S> output{HeadOf(p_.output, rows.token), p_.output.stride};
      const HeadRows<S> grad_output{HeadOf(p_.grad_output, rows.token), p_.grad_output.stride};
      Products::Dots(output, grad_output, rows.missing, scores.columns, p_.depth, delta);
      const GradientTerms<T> terms{score_scale_, mask_, p_.keep_scale, log_sums, delta};
      for (int64_t key = 0; key < scores.keys; key += Products::kChunkKeys) {
        const ScoreBlock chunk =
            task_.Scores(block, p_.causal, key, std::min(scores.keys, key + Products::kChunkKeys));
        constexpr int64_t kPart = Products::kPartQueries;
        for (int64_t c = chunk.FirstQuery(0) / kPart * kPart; c < chunk.columns; c += kPart) {
          const ScoreBlock part = chunk.Part(c, kPart);
          a_.BackwardScores(part, c, key, prefetch_);
          a_.FormGradients(part, terms.From(c), c, key);
        }
        a_.AddGradients(chunk, key, prefetch_);
        if (block + 1 < task_.NumBlocks()) continue;
        if (Products::kCopiesKeys)
          Save(a_.grad_k(key), chunk.keys, p_.scale, p_.grad_k, task_.first_key + key);
        Save(a_.grad_v(key), chunk.keys, p_.keep_scale, p_.grad_v, task_.first_key + key);
      }
      T scales[kScoreColumns];
      std::fill_n(scales, kScoreColumns, p_.scale);
      for (int64_t c = 0; c < scores.columns; c += kScoreColumns) {
        const ScoreBlock part = scores.Part(c, kScoreColumns);
        const int64_t missing = std::clamp<int64_t>(rows.missing - c, 0, part.columns);
        a_.FinishQueryGradient(part, c, prefetch_);
        SaveQueries(missing, part.columns, scales, p_.grad_q,
                    rows.token + c + missing - rows.missing);
      }
    }
    if (!Products::kCopiesKeys)
      Save(a_.grad_k(0), task_.num_keys, p_.scale, p_.grad_k, task_.first_key);
  }

 private:
  // Loads the rows that this block is the first to need.
  ScoreBlock Begin(int64_t block) {
    if (block % Stretch(task_) == 0)
      PlanStretch(block, std::min(block + Stretch(task_), task_.NumBlocks()));
    const int64_t loaded = task_.KeysInSight(block - 1, p_.causal),
                  keys = task_.KeysInSight(block, p_.causal);
    const ScoreBlock scores = task_.Scores(block, p_.causal, 0, keys);
    a_.LoadKeys(loaded, keys);
    a_.LoadQueries(task_.Queries(block), scores.columns);
    if (p_.drop_threshold > 0) StartMask(block);
    return scores;
  }

  // The number of blocks whose prefetches are planned together. All blocks of the task, if L2 holds
  // the scratch, the rows that the next task reads and the rows that this task writes. Reason: a
  // task's first blocks compute less than later ones but read as much. Otherwise one block.
  int64_t Stretch(const AttentionTask& task) const {
    constexpr int64_t kCacheBytes = 512 << 10;
    const int64_t rows = (backward_ ? 4 : 2) * (task.num_queries + task.num_keys);
    return rows * p_.depth * static_cast<int64_t>(sizeof(S)) <= kCacheBytes ? task.NumBlocks() : 1;
  }

  // Plans the prefetches during blocks [begin, end): of their outputs, and of the inputs read after
  // them.
  void PlanStretch(int64_t begin, int64_t end) {
    prefetch_ = RowPrefetch();
    const AttentionTask stretch = task_.Blocks(begin, end, p_.causal);
    if (backward_) {
      const bool in_place = p_.grad_q.data == p_.q.data;  // rows in place are read before
      if (!in_place) Expect(p_.grad_q, task_, stretch.first_query, stretch.num_queries);
      if (!in_place && end == task_.NumBlocks()) {
        Expect(p_.grad_k, task_, task_.first_key, task_.num_keys);
        Expect(p_.grad_v, task_, task_.first_key, task_.num_keys);
      }
    } else {
      Expect(p_.output, task_, stretch.first_query, stretch.num_queries);
    }
    if (end < task_.NumBlocks())
      ExpectInputs(task_, end);
    else if (next_.num_queries > 0)
      ExpectInputs(next_, 0);
    const int64_t products = backward_ ? 5 : 2;
    prefetch_.SpreadOver(products * stretch.NumPairs(p_.causal) * p_.depth / Products::kPiece);
  }
  void ExpectInputs(const AttentionTask& task, int64_t block) {
    const int64_t end = std::min(block + Stretch(task), task.NumBlocks());
    const int64_t seen = task.KeysInSight(block - 1, p_.causal),
                  keys = task.KeysInSight(end - 1, p_.causal) - seen;
    const AttentionTask stretch = task.Blocks(block, end, p_.causal);
    Expect(p_.q, task, stretch.first_query, stretch.num_queries);
    Expect(p_.k, task, task.first_key + seen, keys);
    Expect(p_.v, task, task.first_key + seen, keys);
    if (!backward_) return;
    Expect(p_.grad_output, task, stretch.first_query, stretch.num_queries);
    Expect(p_.output, task, stretch.first_query, stretch.num_queries);
  }
  template <class Element>
  void Expect(const TokenRows<Element>& rows, const AttentionTask& task, int64_t token,
              int64_t count) {
    prefetch_.Add(rows.At(token, task.head, p_.depth),
                  rows.stride * static_cast<int64_t>(sizeof(S)), count,
                  p_.depth * static_cast<int64_t>(sizeof(S)));
  }

  void Save(const T* from, int64_t rows, T factor, const TokenRows<S>& to, int64_t token) {
    a_.Save(from, rows, factor, HeadOf(to, token), to.stride);
  }
  void SaveQueries(int64_t begin, int64_t end, const T* factors, const TokenRows<S>& to,
                   int64_t token) {
    a_.SaveQueries(begin, end, factors, HeadOf(to, token), to.stride);
  }
  template <class Element>
  Element* HeadOf(const TokenRows<Element>& rows, int64_t token) const {
    return rows.At(token, task_.head, p_.depth);
  }

  void PrepareMask() {
    int64_t* places = Scratch<int64_t>(ScratchSlot::TASK_B, task_.num_keys);
    mask_.contiguous = true;
    int64_t previous = -2;
    for (int64_t j = 0; j < task_.num_keys; ++j) {
      const int64_t row = p_.row_index[task_.first_key + j];
      // Usually true; saves a slow division.
      const bool follows = row == previous + 1 && places[j - 1] + 1 < p_.max_length;
      places[j] = follows ? places[j - 1] + 1 : row % p_.max_length;
      mask_.contiguous &= j == 0 || places[j] == places[j - 1] + 1;
      previous = row;
    }
    mask_.keys = p_.keys;
    mask_.step = p_.step;
    mask_.limit = DropLimit(p_.drop_threshold);
    mask_.places = places;
    mask_.room = Scratch<uint32_t>(ScratchSlot::TASK_C, WordColumnsRoom(task_.num_keys));
    mask_.base = mask_base_;
  }

  void StartMask(int64_t block) {
    for (int64_t i = 0; i < task_.block_queries; ++i) {
      const int64_t token = task_.first_query + std::clamp<int64_t>(task_.BlockBegin(block) + i, 0,
                                                                    task_.num_queries - 1);
      mask_base_[i] =
          (static_cast<uint64_t>(p_.row_index[token]) * static_cast<uint64_t>(p_.all_heads) +
           static_cast<uint64_t>(p_.first_head + task_.head)) *
          static_cast<uint64_t>(p_.max_length);
    }
  }

  const AttentionProblem<S>& p_;
  const AttentionTask &task_, &next_;
  const bool backward_;
  Products a_;
  const T score_scale_;
  ColumnMask mask_;
  uint64_t mask_base_[Products::kMaxBlockQueries];
  RowPrefetch prefetch_;
};

}  // namespace tandem::kernels
