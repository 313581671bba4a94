// Scaled dot-product attention (Vaswani et al. 2017) over packed sequences of different lengths: padding is never computed
// and scores exist for one (sequence, head, block of queries) at a time, as in FlashAttention (Dao et al. 2022).
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// T tokens of B sequences lie one after another; sequence b is tokens offsets[b] .. offsets[b + 1] - 1.
// q, k, v, output and their gradients: [T, H, D], one float dtype; strides[1] == D and strides[2] == 1, strides[0] >= H * D
// (so q, k, v may be the three parts of one [T, 3 H D] array). All other arrays are dense, and so is the output of a forward pass.
// Dropout on the probabilities: element (query t, head h, key column j) uses random number
// ((row_index[t] * H + h) * max_length + p), where p is the key's place: row_index[key] % max_length.
struct AttentionArgs {
  ArrayView q, k, v;
  ArrayView offsets;      // i64 [B + 1]
  ArrayView row_index;    // i64 [T]: (global sample) * max_length + position
  int64_t max_length = 0; // positions per sample in row_index
  bool causal = true;
  double scale = 1;       // on q k^T
  float dropout = 0;
  RandomKey key;
  uint64_t step = 0;
};

struct AttentionForwardArgs : AttentionArgs {
  ArrayView output;       // [T, H, D], dense
  ArrayView log_sum_exp;  // [T, H], in units of log 2 (base 2); f32 for bf16, else the same dtype; saved for the backward pass
};
void AttentionForward(const AttentionForwardArgs& args, Stream& stream);

struct AttentionBackwardArgs : AttentionArgs {
  ArrayView output, log_sum_exp, grad_output;
  ArrayView grad_q, grad_k, grad_v;  // overwritten; on the host they may be q, k and v, all three or none
};
void AttentionBackward(const AttentionBackwardArgs& args, Stream& stream);

// Inference with a cache of keys and values: the queries are the last Tq tokens of one sequence of Tk, query i sees keys
// 0 .. Tk - Tq + i. The result is that of AttentionForward on the whole sequence, bit for bit, however the queries are split
// over calls.
struct CachedAttentionArgs {
  ArrayView q;       // [Tq, H, D]
  ArrayView k, v;    // [Tk, H, D], Tk >= Tq; strides as above
  ArrayView output;  // [Tq, H, D], dense
  double scale = 1;
};
void CachedAttention(const CachedAttentionArgs& args, Stream& stream);

}  // namespace tandem::kernels
