// Differentiable operations. Each operation checks shapes, runs its kernels and records a node. The
// rows of a tensor are all its extents but the last.
// After the context has failed, operations still return tensors of the right shape, with
// unspecified values.
// Thread rule: the context's thread.
#pragma once

#include <vector>

#include "kernels/elementwise.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

// In a BF16 run (Context::compute) matrix products take bf16 copies of f32 operands; the copy of a
// parameter is its shadow.

// x [..., In] weight [In, Out] + bias [Out] (undefined: none) -> [..., Out]. The result has the
// type of the product's operands: BF16 in a BF16 run. BackwardWeight computes the gradient of the
// weight.
Variable Linear(Context& context, const Variable& x, const Variable& weight, const Variable& bias);
// Activate(Linear(...)). On a CUDA device this is one pass if the product can apply the activation.
Variable LinearActivate(Context& context, const Variable& x, const Variable& weight,
                        const Variable& bias, kernels::Activation activation);
// a [M, K] b [N, K] -> a b^T [M, N]: scores of rows against rows. F32 in a BF16 run.
Variable MatMulTransposed(Context& context, const Variable& a, const Variable& b);
// The sum of F32 and BF16 is F32: an activation joins the residual stream.
Variable Add(Context& context, const Variable& a, const Variable& b);
// x [..., C] + bias [C], of x's type.
Variable AddBias(Context& context, const Variable& x, const Variable& bias);
// The product of each pair of elements, of equal shapes. The product of F32 and BF16 is F32.
Variable Multiply(Context& context, const Variable& a, const Variable& b);
Variable Scale(Context& context, const Variable& x, double factor);
// x [R, C] plus `value` where row_id[r] == column_id[c]; i64 [R] and [C].
Variable AddWhereEqual(Context& context, const Variable& x, const Tensor& row_id,
                       const Tensor& column_id, double value);
// Gives the elements another shape, without a copy.
Variable Reshape(Context& context, const Variable& x, Shape shape);
Variable Activate(Context& context, const Variable& x, kernels::Activation activation);
inline Variable Sigmoid(Context& context, const Variable& x) {
  return Activate(context, x, kernels::Activation::SIGMOID);
}
// x [..., 2 F] -> [..., F]: silu(first half) times the second.
Variable SwiGlu(Context& context, const Variable& x);
Variable Softmax(Context& context, const Variable& x);
// a [R, D] b [R, D] -> [R], the dot product of each pair of rows. Either may be BF16; products are
// F32.
Variable RowDot(Context& context, const Variable& a, const Variable& b);
// table [N, D], index i64 [R] -> [R, D]. Sums the gradients of equal indices in ascending order of
// their place.
Variable GatherRows(Context& context, const Variable& table, const Tensor& index);
// Parts [..., A], [..., B], ... -> [..., A + B + ...], with equal leading extents. The result is
// BF16 if all parts are, else BF16 parts become F32.
Variable Concat(Context& context, const std::vector<Variable>& parts);
// x [R, C] -> [R, C]: row r times scale[r]. No gradient goes to `scale` [R], which has x's type, or
// is F32 if x is BF16.
Variable ScaleRows(Context& context, const Variable& x, const Tensor& scale);
// Matrices [A, D] and [B, D] of one type -> [A + B, D].
Variable ConcatRows(Context& context, const Variable& above, const Variable& below);
// x [N, D] plus rows [R, D] at the places index i64 [R], all F32 or all F64. Rows of one place are
// added in ascending order.
Variable AddRowsAt(Context& context, const Variable& x, const Variable& rows, const Tensor& index);
// x [T, D] -> [S, D]: the mean of each segment's rows, 0 for an empty segment. Segment s is rows
// offsets[s] .. offsets[s + 1] - 1; offsets i64 [S + 1] rise from 0 to T.
Variable SegmentMean(Context& context, const Variable& x, const Tensor& offsets);

// x [R, F]; row_index i64 [R] holds global row numbers (kernels/elementwise.h). Returns x when not
// training.
Variable Dropout(Context& context, const Variable& x, const Tensor& row_index, float probability,
                 uint64_t operation);

// x + Drop(y), not summed yet: the norm that follows sums on the way. y undefined: x alone. Drop is
// Dropout.
struct Residual {
  Variable x, y = {};
  float dropout = 0;
  uint64_t operation = 0;
  Tensor row_index = {};
};
// The sum alone, where no norm follows: at the end of a pipeline's stage.
Variable Sum(Context& context, const Residual& rows);
// The sum of a residual and its norm. One operation computes both, in both directions. So the sum's
// gradients, from the residual and from the norm, need no extra pass to be added.
struct Normed {
  Variable sum, output;
};

// gamma and beta [D]; undefined: 1 and 0. In a BF16 run f32 rows give a bf16 output. y has the
// output's type.
Normed LayerNorm(Context& context, const Residual& rows, const Variable& gamma,
                 const Variable& beta, double epsilon);
Normed RmsNorm(Context& context, const Residual& rows, const Variable& gamma, double epsilon);
inline Variable LayerNorm(Context& context, const Variable& x, const Variable& gamma,
                          const Variable& beta, double epsilon) {
  return LayerNorm(context, Residual{x}, gamma, beta, epsilon).output;
}
inline Variable RmsNorm(Context& context, const Variable& x, const Variable& gamma,
                        double epsilon) {
  return RmsNorm(context, Residual{x}, gamma, epsilon).output;
}

// The table of a rotary position embedding: positions below max_length, heads of `width`. The
// angles of pair i grow by base^(-2 i / width) radians from one position to the next.
Tensor RotaryTable(int64_t max_length, int64_t width, double base, DType dtype);
struct RotaryOptions {
  Tensor table;      // RotaryTable, where the stream computes; F64 for F64 rows, else F32
  Tensor positions;  // i64 [T]
};
// x [T, heads * D] -> its first `turned` heads turned by their rows' positions (kernels/rotary.h).
Variable Rotate(Context& context, const Variable& x, const RotaryOptions& options, int64_t turned,
                int64_t heads);

// Attention over packed sequences (kernels/attention.h) -> [T, heads * D]. queries [T, heads * D]
// and keys_values [T, 2 * kv_heads * D]. keys_values undefined: `queries` has the columns of both.
struct AttentionOptions {
  int64_t heads = 1;     // of the queries here
  int64_t kv_heads = 0;  // of keys and values; divides heads; 0: heads
  // Numbers for dropout, if the heads are some of a layer's (kernels/attention.h).
  int64_t first_head = 0, all_heads = 0;
  int64_t max_length = 0;
  bool causal = true;
  double scale = 1;
  float dropout = 0;
  uint64_t operation = 0;  // names the dropout's random stream
};
Variable SelfAttention(Context& context, const Variable& queries, const Variable& keys_values,
                       const Tensor& offsets, const Tensor& row_index,
                       const AttentionOptions& options);
inline Variable SelfAttention(Context& context, const Variable& qkv, const Tensor& offsets,
                              const Tensor& row_index, const AttentionOptions& options) {
  return SelfAttention(context, qkv, Variable(), offsets, row_index, options);
}

// logits [R, V], target i64 [R] -> the sum of the rows' cross entropies, a scalar.
Variable CrossEntropySum(Context& context, const Variable& logits, const Tensor& target);
// CrossEntropySum of the logits hidden [T, D] W + bias [V] (undefined: none), without ever holding
// all logits. W is `weight` [D, V], or `weight` [V, D] transposed if weight_is_table. The forward
// pass computes the gradients together with the loss.
Variable LinearCrossEntropySum(Context& context, const Variable& hidden, const Variable& weight,
                               bool weight_is_table, const Variable& bias, const Tensor& target);
// The cross entropy of every row, [T], for evaluation. Computes no gradients.
Tensor LinearCrossEntropyLosses(Context& context, const Variable& hidden, const Variable& weight,
                                bool weight_is_table, const Variable& bias, const Tensor& target);
// Logits [R] and labels [R] in [0, 1] -> the sum of the binary cross entropies, a scalar. Labels
// have the logits' type, or are F32 if the logits are BF16.
Variable BinaryCrossEntropySum(Context& context, const Variable& logits, const Tensor& label);
// Logits [R] and [R'] -> a scalar: the sum of the binary cross entropies of `positive` against 1
// and of `negative` against 0.
Variable BinaryCrossEntropySum(Context& context, const Variable& positive,
                               const Variable& negative);

}  // namespace tandem::ops
