// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last extent. Dense views. x, grad_input, output and
// grad_output have one dtype, but output and grad_output of an F32 x may be BF16; all others are F64 with F64 and F32 otherwise.
// gamma and beta may be empty views (then 1 and 0, and no gradient for them).
//
// A norm may be that of x + Drop(y), the place of a Transformer's residual: the sum is written on the way, and the backward pass
// takes the sum's gradients from elsewhere too. One pass of a CUDA device over the rows; on the CPU the operations of elementwise.h
// before and after, with their bits.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Of y, as DropoutArgs has it; probability 0: none. A CUDA device has no use for the mask: it draws the numbers again.
struct ResidualDropout {
  float probability = 0;
  ArrayView row_index = {};  // i64 [R]
  RandomKey key = {};
  uint64_t step = 0;
  ArrayView mask = {};  // u64 [R, DropoutMaskWords(D)]: written by the forward pass, for the backward pass
};

// Empty y: the norm is that of x, and nothing here counts.
struct ResidualForward {
  ArrayView y = {};    // [R, D], of the output's type
  ArrayView sum = {};  // [R, D], of x's type: x + Drop(y), written. REQUIRES: does not overlap x and y
  ResidualDropout dropout = {};
};

struct ResidualBackward {
  ArrayView grad_sum = {};  // [R, D], of x's type: what the sum's other uses give, added to grad_input; empty: nothing
  ArrayView grad_y = {};    // [R, D], of grad_output's type: written from grad_input by the dropout; empty: not wanted
  ResidualDropout dropout = {};
};

struct LayerNormForwardArgs {
  ArrayView x, gamma, beta;         // [R, D], [D], [D]
  ArrayView output, mean, inverse;  // [R, D], [R], [R]; inverse = 1 / sqrt(variance + epsilon)
  double epsilon = 1e-5;
  ResidualForward residual = {};
};
void LayerNormForward(const LayerNormForwardArgs& args, Stream& stream);

struct LayerNormBackwardArgs {
  ArrayView grad_output, x, gamma, mean, inverse;  // x: what was normalised, so a residual's sum
  ArrayView grad_input;             // written
  ArrayView grad_gamma, grad_beta;  // overwritten; rows summed in blocks of a fixed size, blocks in order
  ResidualBackward residual = {};
};
void LayerNormBackward(const LayerNormBackwardArgs& args, Stream& stream);

struct RmsNormForwardArgs {
  ArrayView x, gamma;         // [R, D], [D]
  ArrayView output, inverse;  // [R, D], [R]
  double epsilon = 1e-5;
  ResidualForward residual = {};
};
void RmsNormForward(const RmsNormForwardArgs& args, Stream& stream);

struct RmsNormBackwardArgs {
  ArrayView grad_output, x, gamma, inverse;
  ArrayView grad_input, grad_gamma;  // overwritten
  ResidualBackward residual = {};
};
void RmsNormBackward(const RmsNormBackwardArgs& args, Stream& stream);

}  // namespace tandem::kernels
