// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dim. Dense
// views.
// Types: x, grad_input, output and grad_output share one dtype, except that output and grad_output
// of an F32 x may be BF16. All other views are F64 with F64 and F32 otherwise. gamma and beta may
// be empty (then 1 and 0, without gradients).
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/base/random.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Dropout of y, with the fields of DropoutArgs; probability 0 means none. A CUDA device ignores the
// mask and draws the random numbers again.
struct ResidualDropout {
  float probability = 0;
  ArrayView row_index = {};  // i64 [R]
  RandomKey key = {};
  uint64_t step = 0;
  // u64 [R, DropoutMaskWords(D)]: the forward pass writes it for the backward pass
  ArrayView mask = {};
};

// The residual of a Transformer block: a norm of x + Drop(y). The forward pass also writes the sum.
// The backward pass adds the gradients of the sum's other uses. A CUDA device does all in one pass
// over the rows. A CPU calls the operations of elementwise.h before and after, with their bits. An
// empty y means a norm of x alone; all other fields are then ignored.
struct ResidualForward {
  ArrayView y = {};  // [R, D], of the output's type
  // [R, D], of x's type: written with x + Drop(y). REQUIRES: does not overlap x and y
  ArrayView sum = {};
  ResidualDropout dropout = {};
};

struct ResidualBackward {
  // [R, D], of x's type: gradients of the sum's other uses, added to grad_input; empty: none
  ArrayView grad_sum = {};
  // [R, D], of grad_output's type: written, the dropout's gradient of grad_input; empty: not wanted
  ArrayView grad_y = {};
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
  // x: the normalised input; with a residual, the sum
  ArrayView grad_output, x, gamma, mean, inverse;
  ArrayView grad_input;  // written
  // Overwritten; rows are summed in blocks of a fixed size, blocks in order.
  ArrayView grad_gamma, grad_beta;
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
