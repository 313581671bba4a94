#include "kernels/rotary.h"

#include <cmath>

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Tensor RotaryTable(int64_t max_length, int64_t width, double base, DType dtype) {
  TANDEM_CHECK_EQ(width % 2, 0);
  const Tensor table = Tensor::Empty(Shape{max_length, width}, dtype);
  const int64_t pairs = width / 2;
  for (int64_t position = 0; position < max_length; ++position) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const double speed =
          std::pow(base, -2 * static_cast<double>(pair) / static_cast<double>(width));
      const double angle = static_cast<double>(position) * speed;
      table.Set(position * width + pair, std::cos(angle));
      table.Set(position * width + pairs + pair, std::sin(angle));
    }
  }
  return table;
}

Variable Rotate(Context& context, const Variable& x, const RotaryOptions& options, int64_t turned,
                int64_t heads) {
  const Shape shape{x.shape()[0], heads, x.shape()[1] / heads};
  const auto rotate = [options, turned, shape](Context& c, const Tensor& from, const Tensor& to,
                                               bool back) {
    kernels::Rotate({.input = from.Reshape(shape).view(),
                     .output = to.Reshape(shape).view(),
                     .positions = options.positions.view(),
                     .table = options.table.view(),
                     .turned = turned,
                     .back = back},
                    c.stream());
  };
  const Tensor y = context.Empty(x.shape(), x.dtype());
  rotate(context, x.value(), y, false);
  return Record(context, "rotate", y,
                {.inputs = {x},
                 .backward_input = [rotate, node = x.node(), dtype = x.dtype()](
                                       Context& c, const Tensor& gradient) {
                   const Tensor dx = node->GradientMemory(c, gradient.shape(), dtype);
                   rotate(c, OfType(c, gradient, dtype), dx, true);
                   return std::vector<Tensor>{dx};
                 }});
}

}  // namespace tandem::ops
