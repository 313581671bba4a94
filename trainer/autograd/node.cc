#include "trainer/autograd/node.h"

#include "kernels/elementwise.h"

namespace tandem {

Tensor LeafNode::ElementsOf(const Tensor& whole, const Part& part, int64_t begin,
                            int64_t count) const {
  if (part.elements.defined())
    return part.elements.Rows(begin - part.begin, begin - part.begin + count);
  TANDEM_CHECK(whole.defined()) << name() << " is freed";
  return whole.Reshape(Shape{whole.num_elements()}).Rows(begin, begin + count);
}

Tensor LeafNode::GradientMemory(Context& context, Shape shape, DType dtype) {
  if (storage_lent_ || has_gradient_ || !Storage().defined()) return context.Empty(shape, dtype);
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
      if (Storage().defined()) {
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
