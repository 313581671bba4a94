// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last extent. Dense views. x, grad_input, output and
// grad_output have one dtype, but output and grad_output of an F32 x may be BF16; all others are F64 with F64 and F32 otherwise.
// gamma and beta may be empty views (then 1 and 0, and no gradient for them).
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/stream.h"

namespace tandem::kernels {

struct LayerNormForwardArgs {
  ArrayView x, gamma, beta;         // [R, D], [D], [D]
  ArrayView output, mean, inverse;  // [R, D], [R], [R]; inverse = 1 / sqrt(variance + epsilon)
  double epsilon = 1e-5;
};
void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream);

struct LayerNormBackwardArgs {
  ArrayView grad_output, x, gamma, mean, inverse;
  ArrayView grad_input;             // written
  ArrayView grad_gamma, grad_beta;  // overwritten; rows summed in blocks of a fixed size, blocks in order
};
void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream);

struct RmsNormForwardArgs {
  ArrayView x, gamma;         // [R, D], [D]
  ArrayView output, inverse;  // [R, D], [R]
  double epsilon = 1e-5;
};
void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream);

struct RmsNormBackwardArgs {
  ArrayView grad_output, x, gamma, inverse;
  ArrayView grad_input, grad_gamma;  // overwritten
};
void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream);

}  // namespace tandem::kernels
