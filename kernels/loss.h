// Fused losses: forward and gradient in one pass over the logits. Losses are per row; the caller sums them and divides once by
// the global count. Dense views; float views share one dtype, but that losses of BF16 logits are F32.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/stream.h"

namespace tandem::kernels {

// loss[r] = log(sum_j exp(x[r, j])) - x[r, target[r]]; grad[r, j] = softmax(x[r])[j] - [j == target[r]].
// grad may be empty (loss only) or the same memory as logits. REQUIRES: targets in [0, V).
struct CrossEntropyArgs {
  ArrayView logits;  // [R, V]
  ArrayView target;  // i64 [R]
  ArrayView loss;    // [R]
  ArrayView grad;    // [R, V]
};
void CrossEntropy(const CrossEntropyArgs& args, Stream& stream);

// loss[r] = -label log(sigmoid(x)) - (1 - label) log(1 - sigmoid(x)), computed without overflow;
// grad[r] = sigmoid(x) - label. grad may be empty or the same memory as logits.
struct BinaryCrossEntropyArgs {
  ArrayView logits, label, loss, grad;  // [R] each, one float dtype
};
void BinaryCrossEntropy(const BinaryCrossEntropyArgs& args, Stream& stream);

}  // namespace tandem::kernels
