// The operands of a matrix product. In a BF16 run (Context::compute) an operand is the bf16 copy of
// an f32 tensor, otherwise the tensor itself. Here alone operations read the values and shadows of
// parameters for products, in forward and again in backward.
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
  if (context.compute() == DType::BF16 && x.is_leaf() && x.leaf().shadow().defined())
    return x.leaf().shadow();
  return Operand(context, x.value());
}

// An operand that backward reads again. The operand of an activation is kept, or made again if its
// node can; that of a parameter is read anew.
class SavedOperand {
 public:
  // `operand` is the operand of `x`.
  SavedOperand(const Variable& x, const Tensor& operand)
      : leaf_(x.is_leaf() ? x : Variable()),
        recoverable_(x.node() != nullptr ? x.node()->recoverable() : nullptr),
        kept_(x.is_leaf() || recoverable_ != nullptr ? Tensor() : operand) {}
  // Starts what Of may have to wait for.
  void Start(Context& context) const {
    if (recoverable_ != nullptr) recoverable_->Start(context);
  }
  Tensor Of(Context& context) const {
    if (recoverable_ != nullptr) return Operand(context, recoverable_->Value(context));
    return leaf_.is_leaf() ? Operand(context, leaf_) : kept_;
  }

 private:
  Variable leaf_;
  std::shared_ptr<Recoverable> recoverable_;
  Tensor kept_;
};

// The bias that a product adds: its shadow if one exists and the result is bf16, else the bias
// itself.
inline const Tensor& BiasFor(DType result, const Variable& bias) {
  return result == DType::BF16 && bias.is_leaf() && bias.leaf().shadow().defined()
             ? bias.leaf().shadow()
             : bias.value();
}

}  // namespace tandem::ops
