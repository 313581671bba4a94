// Fused losses: forward and gradient in one pass over the logits. Losses are per row; the caller
// sums them and divides once by the global count. Views are dense. Float views share one dtype,
// except that losses of BF16 logits are F32.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// loss[r] = log(sum_j exp(x[r, j])) - x[r, target[r]].
// grad[r, j] = softmax(x[r])[j] - [j == target[r]].
// grad may be empty (loss only) or the same memory as logits.
// REQUIRES: targets in [0, V).
struct CrossEntropyArgs {
  ArrayView logits;  // [R, V]
  ArrayView target;  // i64 [R]
  ArrayView loss;    // [R]
  ArrayView grad;    // [R, V]
};
void CrossEntropy(const CrossEntropyArgs& args, Stream& stream);

// The cross entropy of a linear layer's outputs, without storing the outputs. logits[t] = hidden[t]
// W + bias. Some rows of logits at a time are computed, used for losses and gradients, and dropped.
// W is weight [D, V], or weight [V, D] transposed (an embedding table).
// Types: hidden and weight share one dtype, F32, BF16 or F64. loss, bias, grad_weight and grad_bias
// are F32, or F64 with F64. grad_hidden has hidden's dtype or F32.
// Gradients are those of the sum of the losses. Each gradient may be empty; without any, only
// losses are computed.
// REQUIRES: targets in [0, V); no overlap.
struct LinearCrossEntropyArgs {
  ArrayView hidden;  // [T, D]
  ArrayView weight;  // [D, V] or [V, D]
  bool weight_is_table = false;
  ArrayView bias = {};         // [V], may be empty
  ArrayView target;            // i64 [T]
  ArrayView loss;              // [T]
  ArrayView grad_hidden = {};  // [T, D]
  ArrayView grad_weight = {};  // weight's shape
  ArrayView grad_bias = {};    // [V]
};
void LinearCrossEntropy(const LinearCrossEntropyArgs& args, Stream& stream);

// LinearCrossEntropy in two halves, for ranks that each hold some of the classes: weight and bias
// have the V classes first_class, first_class + 1, ... Targets are numbers among all classes. The
// first half gives statistics of the classes here. The caller reduces them over ranks, to the
// logarithm of the sum over all classes. The second half gives the gradients of the summed losses:
// of hidden the part that the classes here contribute.
// Types and shapes are those of LinearCrossEntropy; statistics have the type of its loss.
struct LinearClassesArgs {
  ArrayView hidden;  // [T, D]
  ArrayView weight;  // [D, V] or [V, D]
  bool weight_is_table = false;
  ArrayView bias = {};  // [V], may be empty
  ArrayView target;     // i64 [T]
  int64_t first_class = 0;
};
struct LinearLogSumsArgs : LinearClassesArgs {
  ArrayView log_sum;       // [T]: log(sum over the classes here of exp(logit))
  ArrayView target_logit;  // [T]: 0 if the target's class is elsewhere
};
void LinearLogSums(const LinearLogSumsArgs& args, Stream& stream);
struct LinearCrossEntropyGradientsArgs : LinearClassesArgs {
  ArrayView log_sum;                                             // [T], over all classes
  ArrayView grad_hidden = {}, grad_weight = {}, grad_bias = {};  // each may be empty
};
void LinearCrossEntropyGradients(const LinearCrossEntropyGradientsArgs& args, Stream& stream);

// Between the halves: joins the ranks' statistics. All arrays are [R] of one type, F32 or F64.
// output[r] = exp(log_sum[r] - largest[r]). `largest` is the largest log_sum of any rank. The
// caller adds up the outputs of all ranks.
void RelativeExponentials(const ArrayView& output, const ArrayView& log_sum,
                          const ArrayView& largest, Stream& stream);
// log_sum[r] = largest[r] + log(exponentials[r]), over all classes; loss[r] = log_sum[r] -
// target_logit[r].
struct JoinedLossesArgs {
  ArrayView largest, exponentials, target_logit;
  ArrayView log_sum, loss;
};
void JoinedLosses(const JoinedLossesArgs& args, Stream& stream);

// loss[r] = -label log(sigmoid(x)) - (1 - label) log(1 - sigmoid(x)), computed without overflow;
// grad[r] = sigmoid(x) - label. grad may be empty or the same memory as logits.
struct BinaryCrossEntropyArgs {
  ArrayView logits, label, loss, grad;  // [R] each, one float dtype
};
void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream);

}  // namespace tandem::kernels
