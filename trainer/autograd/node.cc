#include "trainer/autograd/node.h"

#include "kernels/elementwise.h"

namespace tandem {

Tensor LeafNode::GradientMemory(Context& context, Shape shape, DType dtype) {
  if (!storage_.defined() || storage_lent_ || has_gradient_) return context.Empty(shape, dtype);
  TANDEM_CHECK(storage_.num_elements() == shape.num_elements() && storage_.dtype() == dtype)
      << name() << " " << shape;
  storage_lent_ = true;
  return storage_.Reshape(shape);
}

void LeafNode::BackwardInput(Context& context, const Tensor& gradient, Complete complete) {
  if (gradient.defined() && !context.failed()) {
    if (has_gradient_) {
      kernels::AddScaled(gradient_.view(), gradient.view(), 1.0, context.stream());
    } else {
      if (storage_.defined()) {
        gradient_ = storage_;
        if (!OwnsMemory(gradient))
          kernels::Copy(gradient_.view(), gradient.view(), context.stream());
      } else if (gradient.unique()) {
        gradient_ = gradient;
      } else {
        // Another edge shares this memory: adding to it later would change the other edge's
        // gradient.
        gradient_ = context.Empty(gradient.shape(), gradient.dtype());
        kernels::Copy(gradient_.view(), gradient.view(), context.stream());
      }
      has_gradient_ = true;
    }
  }
  if (hook_) hook_(context);
  complete({});
}

}  // namespace tandem
