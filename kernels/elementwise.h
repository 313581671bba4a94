// Element by element: sums, scaling, activations, dropout. All views dense and of one float dtype (F32 or F64) unless
// a comment says otherwise. In-place use (output = input) is allowed everywhere.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/base/stream.h"

namespace tandem::kernels {

void Fill(const ArrayView& x, double value, Stream& stream);  // any dtype
void Copy(const ArrayView& output, const ArrayView& input, Stream& stream);  // same dtype and count
void Add(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output = output + scale * x
void AddScaled(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
void Scale(const ArrayView& output, const ArrayView& x, double scale, Stream& stream);
void Multiply(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream);
// output[r, c] = x[r, c] + bias[c]; rows are all leading dims.
void AddBias(const ArrayView& output, const ArrayView& x, const ArrayView& bias, Stream& stream);

enum class Activation { GELU, GELU_TANH, RELU, SILU };  // GELU: x Phi(x) with erf (Hendrycks and Gimpel 2016)
void ActivationForward(const ArrayView& output, const ArrayView& x, Activation activation, Stream& stream);
// grad_input = grad_output * f'(x)
void ActivationBackward(const ArrayView& grad_input, const ArrayView& grad_output, const ArrayView& x,
                        Activation activation, Stream& stream);

// Inverted dropout (Srivastava et al. 2014): an element is kept with probability 1 - p and scaled by 1 / (1 - p).
// Element (r, f) of x [R, F] uses random number row_index[r] * F + f of (key, step), so the mask depends on the place
// in the global batch alone. The backward pass is the same call on the gradient.
struct DropoutArgs {
  ArrayView x, output;    // [R, F]
  ArrayView row_index;    // i64 [R], global row numbers, none negative
  float probability = 0;  // of dropping, in [0, 1)
  RandomKey key;
  uint64_t step = 0;
};
void Dropout(const DropoutArgs& args, Stream& stream);

}  // namespace tandem::kernels
