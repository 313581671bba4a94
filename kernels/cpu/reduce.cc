#include "kernels/reduce.h"

#include "kernels/cpu/column_partials.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

namespace {

// Sum of term(x[i]) in f64 over one block.
template <class T, class Term>
double BlockTotal(const T* x, int64_t n, const Term& term) {
  double total = 0;
  Vectorised([&] { total = LaneSum<double>(n, [=](int64_t i) { return term(static_cast<double>(x[i])); }); });
  return total;
}

constexpr auto Square = [](double v) { return v * v; };

template <class Term>
double BlockSum(const ArrayView& x, Stream& stream, const Term& term) {
  TANDEM_CHECK(x.is_dense()) << x.shape;
  const int64_t n = x.num_elements(), num_blocks = (n + kSumBlock - 1) / kSumBlock;
  double* partial = Scratch<double>(ScratchSlot::CALLER, num_blocks);
  WithFloatType(x.dtype, [&](auto zero) {
    const auto* data = x.as<decltype(zero)>();
    stream.pool().ParallelFor(num_blocks, [&](int64_t block) {
      const int64_t begin = block * kSumBlock;
      partial[block] = BlockTotal(data + begin, std::min(kSumBlock, n - begin), term);
    });
  });
  double sum = 0;
  for (int64_t block = 0; block < num_blocks; ++block) sum += partial[block];
  return sum;
}

}  // namespace

void ColumnSum(const ArrayView& output, const ArrayView& x, bool accumulate, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && x.is_dense());
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  TANDEM_CHECK_EQ(output.num_elements(), columns);
  WithFloatType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    SumRowBlocks<T>(rows, columns, stream, output.as<T>(), accumulate, [=](int64_t begin, int64_t end, T* partial) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < columns; ++c) partial[c] += from[r * columns + c];
      }
    });
  });
}

void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && a.is_dense() && b.is_dense());
  TANDEM_CHECK(a.shape == b.shape) << a.shape << " and " << b.shape;
  const int64_t rows = a.shape.num_rows(), columns = a.shape[-1];
  TANDEM_CHECK_EQ(output.num_elements(), rows);
  WithFloatType(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *x = a.as<T>(), *y = b.as<T>();
    T* out = output.as<T>();
    ParallelRows(stream, rows, columns, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const T *xr = x + r * columns, *yr = y + r * columns;
          out[r] = LaneSum<T>(columns, [=](int64_t i) { return xr[i] * yr[i]; });
        }
      });
    });
  });
}

void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && x.is_dense() && scale.is_dense());
  TANDEM_CHECK_EQ(output.num_elements(), x.num_elements());
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  TANDEM_CHECK_EQ(scale.num_elements(), rows);
  WithFloatType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.as<T>(), *factor = scale.as<T>();
    T* out = output.as<T>();
    ParallelRows(stream, rows, columns, [&](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const T f = factor[r];
          T* to = out + r * columns;
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c) {
            const T value = from[r * columns + c] * f;
            to[c] = accumulate ? to[c] + value : value;
          }
        }
      });
    });
  });
}

double Sum(const ArrayView& x, Stream& stream) {
  return BlockSum(x, stream, [](double v) { return v; });
}

double SumOfSquares(const ArrayView& x, Stream& stream) { return BlockSum(x, stream, Square); }

template <class T>
double SquaredNorm(const T* x, int64_t n) {
  return BlockTotal(x, n, Square);
}
template double SquaredNorm(const float*, int64_t);
template double SquaredNorm(const double*, int64_t);

}  // namespace tandem::kernels
