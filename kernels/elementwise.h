// Elementwise operations: sums, scaling, activations, dropout. All views are dense and of one float
// type (F32, BF16 or F64) unless a comment says otherwise. BF16 is computed in f32 and rounded
// once. In-place use (output = input, of one type) is allowed unless a comment says otherwise.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

void Fill(const ArrayView& x, double value, Stream& stream);                 // any dtype
void Copy(const ArrayView& output, const ArrayView& input, Stream& stream);  // same dtype and count
// Copies matrices [R, C] of one dtype. Rows are dense, but may be parts of wider rows.
void CopyRows(const ArrayView& output, const ArrayView& input, Stream& stream);
// a and b may be one F32 and one BF16; the output is then F32.
void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output = output + scale * x
void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
// a and b may be one F32 and one BF16; the output is then F32.
void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output[r, c] = x[r, c] + bias[c]; rows are all leading dims. The bias may be F32 while x and
// output are BF16.
void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream);
// output[r, c] = x[r, c], plus `value` where row_id[r] == column_id[c].
// x [R, C], row_id i64 [R], column_id i64 [C].
void AddWhereEqual(const ArrayView& output, const ArrayView& x, const ArrayView& row_id,
                   const ArrayView& column_id, double value, Stream& stream);

// GELU: x Phi(x) with erf (Hendrycks and Gimpel 2016)
enum class Activation { GELU, GELU_TANH, RELU, SILU, SIGMOID };
void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation,
                       Stream& stream);
// grad_input = grad_output * f'(x)
void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                        const ArrayView& x, Activation activation, Stream& stream);

// The gated linear unit SwiGLU (Shazeer 2020). Rows of x [R, 2 F] are gate | up. The output [R, F]
// is silu(gate) * up. Not in place.
void SwiGluForward(const ArrayView& output, const ArrayView& x, Stream& stream);
void SwiGluBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                    Stream& stream);

// Inverted dropout (Srivastava et al. 2014): an element is kept with probability 1 - p and scaled
// by 1 / (1 - p). Element (r, f) of x [R, F] uses random number row_index[r] * F + f of (key,
// step). So the mask depends only on the element's place in the global batch.
struct DropoutArgs {
  ArrayView x, output;    // [R, F]
  ArrayView row_index;    // i64 [R], global row numbers, not negative
  float probability = 0;  // probability of dropping, in [0, 1)
  RandomKey key;
  uint64_t step = 0;
  // u64 [R, DropoutMaskWords(F)]: bits of the kept elements, for the backward pass; may be empty
  ArrayView mask = {};
};
void Dropout(const DropoutArgs& args, Stream& stream);
int64_t DropoutMaskWords(int64_t columns);

// grad_input = grad_output / (1 - p) where the forward pass kept the element, 0 elsewhere.
struct DropoutBackwardArgs {
  ArrayView grad_output, grad_input;  // [R, F]
  ArrayView mask;                     // the mask that the forward pass wrote
  float probability = 0;
};
void DropoutBackward(const DropoutBackwardArgs& args, Stream& stream);

}  // namespace tandem::kernels
