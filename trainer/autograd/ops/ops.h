// Differentiable operations. Each checks shapes, runs its kernels and records a node. Rows are all extents but the last.
// Once the context has failed they still return tensors of the right shape, with unspecified values.
#pragma once

#include <vector>

#include "kernels/elementwise.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

// In a BF16 run (Context::compute) matrix products take bf16 copies of f32 operands (of a parameter: its shadow).

// x [..., In] weight [In, Out] + bias [Out] (undefined: none) -> [..., Out], in the type that the product takes: BF16 in a BF16
// run. The weight's half is BackwardWeight.
Variable Linear(Context& context, const Variable& x, const Variable& weight, const Variable& bias);
// Activate(Linear(...)); on a CUDA device one pass where the product can do both.
Variable LinearActivate(Context& context, const Variable& x, const Variable& weight, const Variable& bias,
                        kernels::Activation activation);
// a [M, K] b [N, K] -> a b^T [M, N]: scores of rows against rows, F32 in a BF16 run.
Variable MatMulTransposed(Context& context, const Variable& a, const Variable& b);
// F32 and BF16 give F32: an activation joins the residual stream.
Variable Add(Context& context, const Variable& a, const Variable& b);
Variable Scale(Context& context, const Variable& x, double factor);
// x [R, C] plus `value` where row_id[r] == column_id[c]; i64 [R] and [C].
Variable AddWhereEqual(Context& context, const Variable& x, const Tensor& row_id, const Tensor& column_id, double value);
// The same elements under another shape, without a copy.
Variable Reshape(Context& context, const Variable& x, Shape shape);
Variable Activate(Context& context, const Variable& x, kernels::Activation activation);
// x [..., 2 F] -> [..., F]: silu(first half) times the second.
Variable SwiGlu(Context& context, const Variable& x);
Variable Softmax(Context& context, const Variable& x);
// a [R, D] b [R, D] -> [R], the dot product of each pair of rows. Either may be BF16: the products are F32.
Variable RowDot(Context& context, const Variable& a, const Variable& b);
// table [N, D], index i64 [R] -> [R, D]. Gradients of equal indices are summed in ascending place.
Variable GatherRows(Context& context, const Variable& table, const Tensor& index);
// [R, A] and [R, B] -> [R, A + B].
Variable ConcatColumns(Context& context, const Variable& a, const Variable& b);

// x [R, F]; row_index i64 [R] holds global row numbers (kernels/elementwise.h). The identity when not training.
Variable Dropout(Context& context, const Variable& x, const Tensor& row_index, float probability, uint64_t operation);

// x + Drop(y), not summed yet: whoever normalises it sums it on the way. y undefined: x alone. Drop as in Dropout.
struct Residual {
  Variable x, y = {};
  float dropout = 0;
  uint64_t operation = 0;
  Tensor row_index = {};
};
// The rows of a residual and their norm: one operation in both directions, so that the gradients that the sum gets as a residual and
// by its norm need no pass of their own to meet.
struct Normed {
  Variable sum, output;
};

// gamma and beta [D]; undefined: 1 and 0. In a BF16 run f32 rows give bf16. y has the output's type.
Normed LayerNorm(Context& context, const Residual& rows, const Variable& gamma, const Variable& beta, double epsilon);
Normed RmsNorm(Context& context, const Residual& rows, const Variable& gamma, double epsilon);
inline Variable LayerNorm(Context& context, const Variable& x, const Variable& gamma, const Variable& beta, double epsilon) {
  return LayerNorm(context, Residual{x}, gamma, beta, epsilon).output;
}
inline Variable RmsNorm(Context& context, const Variable& x, const Variable& gamma, double epsilon) {
  return RmsNorm(context, Residual{x}, gamma, epsilon).output;
}

// qkv [T, 3 * heads * D]: queries, keys and values of packed sequences -> [T, heads * D]. See kernels/attention.h.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t max_length = 0;
  bool causal = true;
  double scale = 1;
  float dropout = 0;
  uint64_t operation = 0;  // names the dropout's random stream
};
Variable SelfAttention(Context& context, const Variable& qkv, const Tensor& offsets, const Tensor& row_index,
                       const AttentionOptions& options);

// logits [R, V], target i64 [R] -> the sum of the rows' cross entropies, a scalar.
Variable CrossEntropySum(Context& context, const Variable& logits, const Tensor& target);
// The same of the logits hidden [T, D] W + bias [V] (undefined: none), which are never held all at once; W is weight [D, V] or, if
// it is a table of embeddings, weight [V, D] transposed. Gradients are formed with the loss, in the forward pass.
Variable LinearCrossEntropySum(Context& context, const Variable& hidden, const Variable& weight, bool weight_is_table,
                               const Variable& bias, const Tensor& target);
// The cross entropy of every row, [T], for evaluation: no gradients.
Tensor LinearCrossEntropyLosses(Context& context, const Variable& hidden, const Variable& weight, bool weight_is_table,
                                const Variable& bias, const Tensor& target);
// Logits [R], label [R] of their type, from 0 to 1 -> the sum of the binary cross entropies, a scalar.
Variable BinaryCrossEntropySum(Context& context, const Variable& logits, const Tensor& label);
// Logits [R] and [R'] -> the sum of the binary cross entropies of `positive` against 1 and of `negative` against 0, a scalar.
Variable BinaryCrossEntropySum(Context& context, const Variable& positive, const Variable& negative);

}  // namespace tandem::ops
