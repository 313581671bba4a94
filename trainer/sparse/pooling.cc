#include "trainer/sparse/pooling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/kernel_span.h"
#include "trainer/autograd/function.h"

namespace tandem::sparse {

namespace {

constexpr int64_t kPlacesAhead = 20;  // how many places ahead rows are prefetched
constexpr int64_t kCacheLine = 64;

template <class T>
inline void FetchRow(const T* row, int64_t dim) {
  for (int64_t i = 0; i < dim; i += kCacheLine / static_cast<int64_t>(sizeof(T)))
    __builtin_prefetch(row + i);
}

double BytesOf(const Tensor& of_rows, const Tensor& of_bags, int64_t num_places) {
  return static_cast<double>(of_rows.num_bytes() + of_bags.num_bytes()) +
         static_cast<double>(num_places) * sizeof(int64_t);
}

struct Bags {
  PlacesOfBags places;
  Pooling pooling;

  int64_t size() const { return places.offsets.dim(0) - 1; }
  int64_t num_places() const { return places.index.dim(0); }
  template <class T>
  const T* weights() const {
    return places.weights.defined() ? places.weights.data<T>() : nullptr;
  }
  template <class T>
  std::vector<T> Factors() const {
    const int64_t* offset = places.offsets.data<int64_t>();
    std::vector<T> factors;
    for (int64_t bag = 0; bag < size(); ++bag) {
      factors.push_back(static_cast<T>(
          ps::PoolingFactor(pooling, static_cast<size_t>(offset[bag + 1] - offset[bag]))));
    }
    return factors;
  }
};

void CheckIndex(const Bags& bags, int64_t num_rows) {
  const int64_t* index = bags.places.index.data<int64_t>();
  for (int64_t place = 0; place < bags.num_places(); ++place) {
    TANDEM_CHECK(index[place] >= 0 && index[place] < num_rows)
        << "index " << index[place] << " at place " << place << ", table " << num_rows;
  }
}

// pooled[b] = factor * sum of weight * row over the bag's places, in their order.
template <class T>
void Pool(const Bags& bags, const Tensor& table, const Tensor& pooled, Stream& stream) {
  const int64_t dim = table.dim(1), num_places = bags.num_places();
  const int64_t *offset = bags.places.offsets.data<int64_t>(),
                *index = bags.places.index.data<int64_t>();
  const KernelSpan span(stream, SpanKind::EMBEDDING, "pool_rows", 0,
                        BytesOf(table, pooled, num_places));
  const std::vector<T> factors = bags.Factors<T>();
  const T *const rows = table.data<T>(), *const weights = bags.weights<T>(),
                 *const factor = factors.data();
  T* const sums = pooled.data<T>();
  kernels::ParallelRows(stream, bags.size(),
                        dim * (1 + num_places / std::max<int64_t>(1, bags.size())),
                        [&](int64_t begin, int64_t end) {
                          kernels::Vectorised([=] {
                            for (int64_t bag = begin; bag < end; ++bag) {
                              T* const sum = sums + bag * dim;
                              for (int64_t i = 0; i < dim; ++i) sum[i] = 0;
                              for (int64_t place = offset[bag]; place < offset[bag + 1]; ++place) {
                                if (place + kPlacesAhead < num_places)
                                  FetchRow(rows + index[place + kPlacesAhead] * dim, dim);
                                const T* const row = rows + index[place] * dim;
                                const T weight = weights == nullptr ? T{1} : weights[place];
#pragma GCC ivdep
                                for (int64_t i = 0; i < dim; ++i) sum[i] += weight * row[i];
                              }
                              for (int64_t i = 0; i < dim; ++i) sum[i] *= factor[bag];
                            }
                          });
                        });
}

// The places of each row, ascending, with their bags. The uses of row r are uses[start[r]] to
// uses[start[r + 1] - 1].
struct UsesOfRows {
  struct Use {
    int64_t place, bag;
  };
  std::vector<int64_t> start;
  std::vector<Use> uses;

  UsesOfRows(const Bags& bags, int64_t num_rows)
      : start(static_cast<size_t>(num_rows) + 2), uses(static_cast<size_t>(bags.num_places())) {
    const int64_t *offset = bags.places.offsets.data<int64_t>(),
                  *index = bags.places.index.data<int64_t>();
    // Shifted by one: during the sort, start[r + 1] is the next free use of row r. It ends as the
    // start of row r + 1.
    for (int64_t place = 0; place < bags.num_places(); ++place) ++start[index[place] + 2];
    for (size_t row = 1; row < start.size(); ++row) start[row] += start[row - 1];
    for (int64_t bag = 0; bag < bags.size(); ++bag) {
      for (int64_t place = offset[bag]; place < offset[bag + 1]; ++place)
        uses[start[index[place] + 1]++] = {place, bag};
    }
  }
};

// rows[r] = sum of weight * factor * gradient[bag of the place] over the row's places, in their
// order.
template <class T>
void SumGradients(const Bags& bags, const Tensor& of_bags, const Tensor& of_rows, Stream& stream) {
  const int64_t dim = of_bags.dim(1), num_rows = of_rows.dim(0), num_places = bags.num_places();
  const KernelSpan span(stream, SpanKind::EMBEDDING, "sum_bag_gradients", 0,
                        BytesOf(of_rows, of_bags, num_places));
  const UsesOfRows sorted(bags, num_rows);
  const std::vector<T> factors = bags.Factors<T>();
  const int64_t* const start = sorted.start.data();
  const UsesOfRows::Use* const uses = sorted.uses.data();
  const T *const gradients = of_bags.data<T>(), *const weights = bags.weights<T>(),
                 *const factor = factors.data();
  T* const rows = of_rows.data<T>();
  kernels::ParallelRows(stream, num_rows, dim * (1 + num_places / std::max<int64_t>(1, num_rows)),
                        [&](int64_t begin, int64_t end) {
                          kernels::Vectorised([=] {
                            for (int64_t r = begin; r < end; ++r) {
                              T* const row = rows + r * dim;
                              if (start[r] == start[r + 1]) {
                                for (int64_t i = 0; i < dim; ++i) row[i] = 0;
                              }
                              for (int64_t at = start[r]; at < start[r + 1]; ++at) {
                                if (at + kPlacesAhead < num_places)
                                  FetchRow(gradients + uses[at + kPlacesAhead].bag * dim, dim);
                                const T* const gradient = gradients + uses[at].bag * dim;
                                const T weight =
                                            weights == nullptr ? T{1} : weights[uses[at].place],
                                        scale = factor[uses[at].bag];
                                if (at == start[r]) {
#pragma GCC ivdep
                                  for (int64_t i = 0; i < dim; ++i)
                                    row[i] = weight * (scale * gradient[i]);
                                } else {
#pragma GCC ivdep
                                  for (int64_t i = 0; i < dim; ++i)
                                    row[i] += weight * (scale * gradient[i]);
                                }
                              }
                            }
                          });
                        });
}

}  // namespace

absl::Status CheckOffsets(const Tensor& offsets, int64_t num_places) {
  if (offsets.dtype() != DType::I64 || offsets.shape().num_dims() != 1 || offsets.dim(0) < 1) {
    return absl::InvalidArgumentError("a bag's offsets are i64 [bags + 1]");
  }
  const int64_t* offset = offsets.data<int64_t>();
  const int64_t bags = offsets.dim(0) - 1;
  bool rising = offset[0] == 0 && offset[bags] == num_places;
  for (int64_t bag = 0; bag < bags; ++bag) rising &= offset[bag] <= offset[bag + 1];
  if (rising) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offsets do not rise from 0 to ", num_places, ", the number of ids"));
}

Variable PoolRows(Context& context, const Variable& table, const PlacesOfBags& places,
                  Pooling pooling) {
  const Bags bags{places, pooling};
  CheckIndex(bags, table.shape()[0]);
  const Tensor pooled = Tensor::Empty(Shape{bags.size(), table.shape()[1]}, table.dtype());
  if (table.dtype() == DType::F64)
    Pool<double>(bags, table.value(), pooled, context.stream());
  else
    Pool<float>(bags, table.value(), pooled, context.stream());
  const auto backward = [bags, node = table.node().get(), shape = table.shape()](
                            Context& c, const Tensor& gradient) {
    const Tensor of_rows = node->GradientMemory(c, shape, gradient.dtype());
    if (gradient.dtype() == DType::F64)
      SumGradients<double>(bags, gradient, of_rows, c.stream());
    else
      SumGradients<float>(bags, gradient, of_rows, c.stream());
    return std::vector<Tensor>{of_rows};
  };
  return Record(context, "pool_rows", pooled, {.inputs = {table}, .backward_input = backward});
}

}  // namespace tandem::sparse
