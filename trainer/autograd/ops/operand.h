// The operands of a matrix product. In a BF16 run (Context::compute) an operand is the bf16 copy of
// an f32 tensor, otherwise the tensor itself.
// Thread rule: the context's thread.
#pragma once

#include "kernels/cast.h"
#include "trainer/autograd/variable.h"

namespace tandem::ops {

inline Tensor OfType(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor cast = context.Empty(x.shape(), dtype);
  kernels::Cast(cast.view(), x.view(), context.stream());
  return cast;
}

// The type of sums and statistics over elements of `dtype`.
inline DType StatisticsType(DType dtype) { return dtype == DType::BF16 ? DType::F32 : dtype; }

inline Tensor Operand(Context& context, const Tensor& x) {
  return context.compute() == DType::BF16 ? OfType(context, x, DType::BF16) : x;
}

// Like Operand above. The bf16 copy of a parameter is its shadow.
inline Tensor Operand(Context& context, const Variable& x) {
  const auto* leaf = dynamic_cast<const LeafNode*>(x.node().get());
  if (context.compute() == DType::BF16 && leaf != nullptr && leaf->shadow().defined())
    return leaf->shadow();
  return Operand(context, x.value());
}

// The bias that a product adds: its shadow if one exists and the result is bf16, else the bias
// itself.
inline const Tensor& BiasFor(DType result, const Variable& bias) {
  const auto* leaf = dynamic_cast<const LeafNode*>(bias.node().get());
  return leaf != nullptr && leaf->shadow().defined() && result == DType::BF16 ? leaf->shadow()
                                                                              : bias.value();
}

}  // namespace tandem::ops
