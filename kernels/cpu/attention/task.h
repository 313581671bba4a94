// The inputs and outputs of attention, and its split into tasks of one (sequence, head) and blocks
// of queries.
// Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention/block.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/philox_lanes.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

// A [T, H, D] array: tokens lie `stride` elements apart, heads D elements apart. `sharing`
// neighbouring heads of queries share one of its heads.
template <class S>
struct TokenRows {
  S* data = nullptr;
  int64_t stride = 0, sharing = 1;

  // The row of a head of queries.
  S* At(int64_t token, int64_t head, int64_t depth) const {
    return data + token * stride + head / sharing * depth;
  }
};

// The arguments, in one storage type.
template <class S>
struct AttentionProblem {
  using T = Compute<S>;
  TokenRows<const S> q, k, v;
  TokenRows<S> output;
  T* log_sum_exp = nullptr;  // forward: may be null
  TokenRows<const S> grad_output;
  TokenRows<S> grad_q, grad_k, grad_v;
  int64_t num_heads = 0, depth = 0;
  int64_t first_head = 0, all_heads = 0;  // numbers for dropout
  bool causal = true;
  T scale = 1;
  const int64_t *offsets = nullptr, *row_index = nullptr;
  int64_t max_length = 0;
  uint32_t drop_threshold = 0;
  T keep_scale = 1;
  PhiloxKeys keys;
  uint64_t step = 0;
};

// The rows of one block of a head: `missing` absent rows, then `count` rows from `token` on.
struct BlockRows {
  int64_t token, count, missing;
};

// One sequence and head. The queries are the last `num_queries` of `num_keys` tokens, in blocks of
// block_queries, a multiple of kScoreColumns. Only the first block may be incomplete. Its missing
// rows precede the first query, where the fewest keys are visible.
struct AttentionTask {
  int64_t head = 0, first_query = 0, num_queries = 0, first_key = 0, num_keys = 0,
          block_queries = kScoreColumns;

  int64_t NumBlocks() const { return (num_queries + block_queries - 1) / block_queries; }
  // The block's first query, a whole number of vectors before the block's end. Negative for the
  // first block if its first vector is incomplete.
  int64_t BlockBegin(int64_t block) const {
    return num_queries -
           std::min((NumBlocks() - block) * block_queries, RoundUp(num_queries, kLanes));
  }
  BlockRows Queries(int64_t block) const {
    const int64_t begin = BlockBegin(block), first = std::max<int64_t>(0, begin);
    return {first_query + first, BlockBegin(block + 1) - first, first - begin};
  }
  int64_t Position(int64_t block) const { return num_keys - num_queries + BlockBegin(block); }
  // Some query of the block sees the keys [0, KeysInSight).
  int64_t KeysInSight(int64_t block, bool causal) const {
    if (block < 0) return 0;
    return causal ? Position(block + 1) : num_keys;
  }
  // The block's scores against keys [key_begin, key_end).
  ScoreBlock Scores(int64_t block, bool causal, int64_t key_begin, int64_t key_end) const {
    const int64_t keys = key_end - key_begin;
    return {BlockBegin(block + 1) - BlockBegin(block), keys,
            causal ? Position(block) - key_begin : keys};
  }
  // The queries of blocks [begin, end) and the keys that at least one of them sees.
  AttentionTask Blocks(int64_t begin, int64_t end, bool causal) const {
    const int64_t first = std::max<int64_t>(0, BlockBegin(begin)),
                  keys = KeysInSight(end - 1, causal);
    return {head, first_query + first, BlockBegin(end) - first, first_key, keys, block_queries};
  }
  // The number of visible pairs of query and key.
  int64_t NumPairs(bool causal) const {
    return num_queries * num_keys - (causal ? num_queries * (num_queries - 1) / 2 : 0);
  }
};

}  // namespace tandem::kernels
