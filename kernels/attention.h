// Scaled dot-product attention (Vaswani et al. 2017) over packed sequences of different lengths.
// Kernels never compute padding. Scores exist for one (sequence, head, block of queries) at a time,
// like in FlashAttention (Dao et al. 2022).
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// T tokens of B sequences are packed: sequence b is tokens offsets[b] .. offsets[b + 1] - 1.
// Shapes: q, output and their gradients are [T, H, D], k, v and their gradients [T, G, D], of one
// float dtype. G divides H: heads h of q with equal h / (H / G) share a head of k and v.
// Strides: strides[2] == 1, strides[1] == D, strides[0] >= heads * D. So q, k and v may be three
// parts of one array. All other arrays are dense, and so is the output of a forward
// pass.
// The H heads may be some of a layer's heads: heads first_head, first_head + 1, ... of all_heads.
// Dropout on the probabilities: element (query t, head h, key column j) uses random number
// ((row_index[t] * all_heads + first_head + h) * max_length + p). p is row_index[key] % max_length,
// the key's place in its sample.
struct AttentionArgs {
  ArrayView q, k, v;
  ArrayView offsets;       // i64 [B + 1]
  ArrayView row_index;     // i64 [T]: (global sample) * max_length + position
  int64_t max_length = 0;  // positions per sample in row_index
  bool causal = true;
  double scale = 1;  // factor of q k^T
  float dropout = 0;
  RandomKey key;
  uint64_t step = 0;
  int64_t first_head = 0, all_heads = 0;  // all_heads 0: H
};

struct AttentionForwardArgs : AttentionArgs {
  ArrayView output;  // [T, H, D], dense
  // [T, H], base 2 (log2 of the sum); f32 for bf16, else the inputs' dtype; saved for the backward
  // pass
  ArrayView log_sum_exp;
};
void AttentionForward(const AttentionForwardArgs& args, Stream& stream);

struct AttentionBackwardArgs : AttentionArgs {
  ArrayView output, log_sum_exp, grad_output;
  // Overwritten; on a CPU they may alias q, k and v, all three or none.
  ArrayView grad_q, grad_k, grad_v;
};
void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream);

// Attention for inference with a cache of keys and values. The queries are the last Tq tokens of
// one sequence of Tk tokens. Query i sees keys 0 .. Tk - Tq + i. The result equals
// AttentionForward's on the whole sequence, bit for bit, however the queries are split over calls.
struct CachedAttentionArgs {
  ArrayView q;       // [Tq, H, D]
  ArrayView k, v;    // [Tk, G, D], Tk >= Tq; strides as above
  ArrayView output;  // [Tq, H, D], dense
  double scale = 1;
};
void CachedAttention(const CachedAttentionArgs& args, Stream& stream);

}  // namespace tandem::kernels
