#include "trainer/remote/pooling.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/autograd/function.h"

namespace tandem::remote {

namespace {

struct Bags {
  Tensor offsets, weights;
  Pooling pooling;

  int64_t size() const { return offsets.dim(0) - 1; }
  // Calls visit(bag, row, factor) for every row, in order.
  template <class T, class Visit>
  void ForEachRow(Visit visit) const {
    const int64_t* offset = offsets.data<int64_t>();
    for (int64_t bag = 0; bag < size(); ++bag) {
      const double factor = PoolingFactor(pooling, offset[bag + 1] - offset[bag]);
      for (int64_t row = offset[bag]; row < offset[bag + 1]; ++row) {
        visit(bag, row, static_cast<T>(weights.defined() ? factor * weights.data<T>()[row] : factor));
      }
    }
  }
};

// to[bag] += factor from[row], or the reverse.
template <class T>
void Accumulate(const Bags& bags, const Tensor& rows, const Tensor& pooled, bool backward) {
  const int64_t dim = rows.dim(1);
  bags.ForEachRow<T>([&](int64_t bag, int64_t row, T factor) {
    T* of_row = rows.data<T>() + row * dim;
    T* of_bag = pooled.data<T>() + bag * dim;
    for (int64_t i = 0; i < dim; ++i) {
      if (backward) of_row[i] += factor * of_bag[i];
      else of_bag[i] += factor * of_row[i];
    }
  });
}

void Accumulate(const Bags& bags, const Tensor& rows, const Tensor& pooled, bool backward) {
  if (rows.dtype() == DType::F64) Accumulate<double>(bags, rows, pooled, backward);
  else Accumulate<float>(bags, rows, pooled, backward);
}

}  // namespace

double PoolingFactor(Pooling pooling, int64_t count) {
  if (pooling == Pooling::SUM || count == 0) return 1;
  return pooling == Pooling::MEAN ? 1.0 / static_cast<double>(count) : 1.0 / std::sqrt(static_cast<double>(count));
}

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
  const Tensor pooled = Tensor::Zeros(Shape{bags.size(), rows.shape()[1]}, rows.dtype());
  Accumulate(bags, rows.value(), pooled, false);
  return Record(context, "pool_rows", pooled, {.inputs = {rows}, .backward_input = [bags, shape = rows.shape()](Context&, const Tensor& gradient) {
                  const Tensor of_rows = Tensor::Zeros(shape, gradient.dtype());
                  Accumulate(bags, of_rows, gradient, true);
                  return std::vector<Tensor>{of_rows};
                }});
}

}  // namespace tandem::remote
