#include "kernels/segment.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable SegmentMean(Context& context, const Variable& x, const Tensor& offsets) {
  TANDEM_CHECK_EQ(x.shape().num_dims(), 2);
  const Tensor y = context.Empty(Shape{offsets.dim(0) - 1, x.shape()[1]}, x.dtype());
  kernels::SegmentMean(y.view(), x.value().view(), offsets.view(), context.stream());
  return Record(context, "segment_mean", y,
                {.inputs = {x},
                 .backward_input = [offsets, shape = x.shape(), dtype = x.dtype(), node = x.node()](
                                       Context& c, const Tensor& gradient) {
                   const Tensor dx = node->GradientMemory(c, shape, dtype);
                   kernels::SegmentMeanBackward(dx.view(), OfType(c, gradient, dtype).view(),
                                                offsets.view(), c.stream());
                   return std::vector<Tensor>{dx};
                 }});
}

}  // namespace tandem::ops
