#include "trainer/remote/pooling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/autograd/function.h"

namespace tandem::remote {

namespace {

struct Bags {
  Tensor offsets, weights;
  Pooling pooling;

  int64_t size() const { return offsets.dim(0) - 1; }
  template <class T>
  T Factor(int64_t bag) const {
    const int64_t* offset = offsets.data<int64_t>();
    return static_cast<T>(ps::PoolingFactor(pooling, static_cast<size_t>(offset[bag + 1] - offset[bag])));
  }
};

// pooled[b] = factor (sum over the bag's rows of weight row), in their order.
template <class T>
void Pool(const Bags& bags, const Tensor& rows, const Tensor& pooled) {
  const int64_t dim = rows.dim(1);
  const int64_t* offset = bags.offsets.data<int64_t>();
  for (int64_t bag = 0; bag < bags.size(); ++bag) {
    T* sum = pooled.data<T>() + bag * dim;
    std::fill(sum, sum + dim, T{0});
    for (int64_t row = offset[bag]; row < offset[bag + 1]; ++row) {
      const T weight = bags.weights.defined() ? bags.weights.data<T>()[row] : T{1};
      for (int64_t i = 0; i < dim; ++i) sum[i] += weight * rows.data<T>()[row * dim + i];
    }
    for (int64_t i = 0; i < dim; ++i) sum[i] *= bags.Factor<T>(bag);
  }
}

// rows[r] = weight factor gradient[bag of r].
template <class T>
void Spread(const Bags& bags, const Tensor& gradient, const Tensor& rows) {
  const int64_t dim = rows.dim(1);
  const int64_t* offset = bags.offsets.data<int64_t>();
  for (int64_t bag = 0; bag < bags.size(); ++bag) {
    const T factor = bags.Factor<T>(bag);
    for (int64_t row = offset[bag]; row < offset[bag + 1]; ++row) {
      const T weight = bags.weights.defined() ? bags.weights.data<T>()[row] : T{1};
      for (int64_t i = 0; i < dim; ++i) rows.data<T>()[row * dim + i] = weight * (factor * gradient.data<T>()[bag * dim + i]);
    }
  }
}

}  // namespace

absl::Status CheckOffsets(const Tensor& offsets, int64_t num_rows) {
  if (offsets.dtype() != DType::I64 || offsets.shape().num_dims() != 1 || offsets.dim(0) < 1) {
    return absl::InvalidArgumentError("a bag's offsets are i64 [bags + 1]");
  }
  const int64_t* offset = offsets.data<int64_t>();
  const int64_t bags = offsets.dim(0) - 1;
  bool rising = offset[0] == 0 && offset[bags] == num_rows;
  for (int64_t bag = 0; bag < bags; ++bag) rising &= offset[bag] <= offset[bag + 1];
  if (rising) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("offsets do not rise from 0 to ", num_rows, ", the number of ids"));
}

Variable PoolRows(Context& context, const Variable& rows, const Tensor& offsets, const Tensor& weights, Pooling pooling) {
  const Bags bags{offsets, weights, pooling};
  const Tensor pooled = Tensor::Empty(Shape{bags.size(), rows.shape()[1]}, rows.dtype());
  if (rows.dtype() == DType::F64) Pool<double>(bags, rows.value(), pooled);
  else Pool<float>(bags, rows.value(), pooled);
  const auto backward = [bags, shape = rows.shape()](Context&, const Tensor& gradient) {
    const Tensor of_rows = Tensor::Empty(shape, gradient.dtype());
    if (gradient.dtype() == DType::F64) Spread<double>(bags, gradient, of_rows);
    else Spread<float>(bags, gradient, of_rows);
    return std::vector<Tensor>{of_rows};
  };
  return Record(context, "pool_rows", pooled, {.inputs = {rows}, .backward_input = backward});
}

}  // namespace tandem::remote
