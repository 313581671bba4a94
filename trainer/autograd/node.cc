#include "trainer/autograd/node.h"

#include "kernels/elementwise.h"

namespace tandem {

void LeafNode::BackwardInput(Context& context, const Tensor& gradient, Complete complete) {
  if (gradient.defined() && !context.failed()) {
    if (has_gradient_) {
      kernels::AddScaled(gradient_.view(), gradient.view(), 1.0, context.stream());
    } else {
      if (storage_.defined()) {
        gradient_ = storage_;
        kernels::Copy(gradient_.view(), gradient.view(), context.stream());
      } else {
        // A gradient's memory may be shared with another edge: adding to it later would change that one too.
        gradient_ = gradient.unique() ? gradient : gradient.Clone();
      }
      has_gradient_ = true;
    }
  }
  if (hook_) hook_(context);
  complete({});
}

}  // namespace tandem
