#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/reduce.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable ScaleRows(Context& context, const Variable& x, const Tensor& scale) {
  TANDEM_CHECK_EQ(scale.num_elements(), x.shape().num_rows());
  const auto scaled = [scale](Context& c, const Tensor& rows) {
    const Tensor y = c.Empty(rows.shape(), rows.dtype());
    kernels::ScaleRows(y.view(), rows.view(), scale.view(), /*accumulate=*/false, c.stream());
    return y;
  };
  return Record(context, "scale_rows", scaled(context, x.value()),
                {.inputs = {x}, .backward_input = [scaled](Context& c, const Tensor& gradient) {
                   return std::vector<Tensor>{scaled(c, gradient)};
                 }});
}

Variable ConcatRows(Context& context, const Variable& above, const Variable& below) {
  TANDEM_CHECK(above.shape().num_dims() == 2 && below.shape().num_dims() == 2 &&
               above.shape()[1] == below.shape()[1] && above.dtype() == below.dtype())
      << above.shape() << " above " << below.shape();
  const int64_t split = above.shape()[0], rows = split + below.shape()[0];
  const Tensor y = context.Empty(Shape{rows, above.shape()[1]}, above.dtype());
  kernels::Copy(y.Rows(0, split).view(), above.value().view(), context.stream());
  kernels::Copy(y.Rows(split, rows).view(), below.value().view(), context.stream());
  return Record(
      context, "concat_rows", y,
      {.inputs = {above, below}, .backward_input = [split, rows](Context&, const Tensor& gradient) {
         return std::vector<Tensor>{gradient.Rows(0, split), gradient.Rows(split, rows)};
       }});
}

Variable AddRowsAt(Context& context, const Variable& x, const Variable& rows, const Tensor& index) {
  TANDEM_CHECK(x.shape().num_dims() == 2 && rows.shape().num_dims() == 2 &&
               x.shape()[1] == rows.shape()[1] && x.dtype() == rows.dtype())
      << rows.shape() << " into " << x.shape();
  const Tensor y = context.Empty(x.shape(), x.dtype());
  kernels::Copy(y.view(), x.value().view(), context.stream());
  kernels::ScatterAddRows(y.view(), rows.value().view(), index.view(), /*accumulate=*/true,
                          context.stream());
  return Record(context, "add_rows_at", y,
                {.inputs = {x, rows},
                 .backward_input = [index, shape = rows.shape(), needed = rows.requires_gradient()](
                                       Context& c, const Tensor& gradient) {
                   Tensor of_rows;
                   if (needed) {
                     of_rows = c.Empty(shape, gradient.dtype());
                     kernels::GatherRows(of_rows.view(), gradient.view(), index.view(), c.stream());
                   }
                   return std::vector<Tensor>{gradient, of_rows};
                 }});
}

}  // namespace tandem::ops
