#include "kernels/embedding.h"

#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

Variable GatherRows(Context& context, const Variable& table, const Tensor& index) {
  Tensor rows = context.Empty(Shape{index.dim(0), table.shape()[1]}, table.dtype());
  kernels::GatherRows(rows.view(), table.value().view(), index.view(), context.stream());
  return Record(context, "gather_rows", rows,
                {.inputs = {table},
                 .backward_input = [index, node = table.node().get(), shape = table.shape()](
                                       Context& c, const Tensor& gradient) {
                   Tensor dtable = node->GradientMemory(c, shape, gradient.dtype());
                   kernels::ScatterAddRows(dtable.view(), gradient.view(), index.view(), false,
                                           c.stream());
                   return std::vector<Tensor>{dtable};
                 }});
}

}  // namespace tandem::ops
