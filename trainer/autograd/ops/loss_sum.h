// How a loss whose forward pass has computed its gradients records itself.
// Thread rule: the context's thread.
#pragma once

#include <vector>

#include "trainer/autograd/variable.h"

namespace tandem::ops {

// Records the sum of `losses`. `gradients` are those of the inputs (undefined: none) for a gradient
// of 1 of the sum. Backward scales them by any other gradient.
Variable RecordLossSum(Context& context, const char* name, std::vector<Variable> inputs,
                       const std::vector<Tensor>& losses, std::vector<Tensor> gradients);

// Memory for the gradients of hidden states, weight and bias of a head, in the types that kernels
// sum in. Undefined where no gradient is needed.
std::vector<Tensor> GradientsOfHead(Context& context, const std::vector<Variable>& inputs);
// RecordLossSum of a head's inputs, with gradients from GradientsOfHead.
Variable RecordHeadLoss(Context& context, const char* name, const std::vector<Variable>& inputs,
                        const Tensor& loss, std::vector<Tensor> gradients);

}  // namespace tandem::ops
