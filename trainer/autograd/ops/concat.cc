#include "kernels/elementwise.h"
#include "trainer/autograd/function.h"
#include "trainer/autograd/ops/operand.h"
#include "trainer/autograd/ops/ops.h"

namespace tandem::ops {

namespace {

// Columns [begin, begin + width) of a dense tensor, as a matrix of all its rows.
ArrayView ColumnsOf(const Tensor& tensor, int64_t begin, int64_t width) {
  return ArrayView(
      static_cast<char*>(tensor.raw()) + static_cast<size_t>(begin) * SizeOf(tensor.dtype()),
      tensor.dtype(), Shape{tensor.shape().num_rows(), width}, Shape{tensor.shape()[-1], 1});
}

ArrayView AllColumnsOf(const Tensor& tensor) { return ColumnsOf(tensor, 0, tensor.shape()[-1]); }

// The shape and the type of the parts side by side.
Tensor EmptyResult(Context& context, const std::vector<Variable>& parts) {
  TANDEM_CHECK(!parts.empty());
  Shape shape = parts[0].shape();
  DType dtype = parts[0].dtype();
  shape[-1] = 0;
  for (const Variable& part : parts) {
    Shape leading = part.shape();
    leading[-1] = shape[-1];
    TANDEM_CHECK(leading == shape) << part.shape() << " beside " << parts[0].shape();
    shape[-1] += part.shape()[-1];
    if (dtype == DType::BF16) dtype = part.dtype();
  }
  return context.Empty(shape, dtype);
}

struct Part {
  Shape shape;
  DType dtype;
  bool needs_gradient;
};

}  // namespace

Variable Concat(Context& context, const std::vector<Variable>& parts) {
  const Tensor y = EmptyResult(context, parts);
  std::vector<Part> kept;
  int64_t begin = 0;
  for (const Variable& part : parts) {
    const int64_t width = part.shape()[-1];
    kernels::CopyRows(ColumnsOf(y, begin, width),
                      AllColumnsOf(OfType(context, part.value(), y.dtype())), context.stream());
    begin += width;
    kept.push_back({part.shape(), part.dtype(), part.requires_gradient()});
  }
  const auto backward = [kept = std::move(kept)](Context& c, const Tensor& gradient) {
    std::vector<Tensor> gradients;
    int64_t from = 0;
    for (const Part& part : kept) {
      Tensor dx;
      if (part.needs_gradient) {
        dx = c.Empty(part.shape, gradient.dtype());
        kernels::CopyRows(AllColumnsOf(dx), ColumnsOf(gradient, from, part.shape[-1]), c.stream());
        dx = OfType(c, dx, part.dtype);
      }
      gradients.push_back(dx);
      from += part.shape[-1];
    }
    return gradients;
  };
  return Record(context, "concat", y, {.inputs = parts, .backward_input = backward});
}

}  // namespace tandem::ops
