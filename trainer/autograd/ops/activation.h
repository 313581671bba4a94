// The backward graph's part of an activation, for operations that compute an activation themselves.
// Thread rule: the context's thread.
#pragma once

#include "kernels/elementwise.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

// Records y = activation(x). REQUIRES: the kernel that computes y has been submitted.
Variable RecordActivation(Context& context, const Variable& x, const Tensor& y,
                          kernels::Activation activation);

}  // namespace tandem::ops
