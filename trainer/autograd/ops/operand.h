// What enters a matrix product: in a BF16 run (Context::compute) the bf16 copy of an f32 tensor, otherwise the tensor itself.
#pragma once

#include "kernels/cast.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

inline Tensor Operand(Context& context, const Tensor& x) {
  if (context.compute() != DType::BF16 || x.dtype() != DType::F32) return x;
  const Tensor rounded = Tensor::Empty(x.shape(), DType::BF16);
  kernels::Cast(rounded.view(), x.view(), context.stream());
  return rounded;
}

// A parameter's copy is its shadow.
inline Tensor Operand(Context& context, const Variable& x) {
  const auto* leaf = dynamic_cast<const LeafNode*>(x.node().get());
  if (context.compute() == DType::BF16 && leaf != nullptr && leaf->shadow().defined()) return leaf->shadow();
  return Operand(context, x.value());
}

}  // namespace tandem::ops
