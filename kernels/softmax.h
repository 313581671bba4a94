// Softmax over the last dim. Dense float views of one dtype.
// Thread rule: the stream's thread.
#pragma once

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

void SoftmaxForward(const ArrayView& output, const ArrayView& x, Stream& stream);
// grad_input = output * (grad_output - sum(grad_output * output))
void SoftmaxBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                     const ArrayView& output, Stream& stream);

}  // namespace tandem::kernels
