// The graph's half of an activation, for operations that compute one on the way.
#pragma once

#include "kernels/elementwise.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

// y = activation(x), which has been submitted.
Variable RecordActivation(Context& context, const Variable& x, const Tensor& y, kernels::Activation activation);

}  // namespace tandem::ops
