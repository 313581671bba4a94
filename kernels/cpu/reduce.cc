#include "kernels/reduce.h"

#include "kernels/cpu/vector/column_partials.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/strips.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

// Sum of term(x[i]) in f64 over one block.
template <class T, class Term>
double BlockTotal(const T* x, int64_t n, const Term& term) {
  double total = 0;
  Vectorised([=, &total] {
    double lane[kLanes] = {};
    InStrips(
        n,
        [=, &lane](int64_t begin, int64_t end) {
          AddToLanes(
              begin, end, [=](int64_t i) { return term(static_cast<double>(x[i])); }, lane);
        },
        x);
    total = FoldSum(lane);
  });
  return total;
}

constexpr auto Square = [](double v) { return v * v; };

template <class Term>
double BlockSum(const ArrayView& x, Stream& stream, const Term& term) {
  const KernelSpan span(stream, SpanKind::REDUCE, "sum", 0, static_cast<double>(x.num_bytes()));
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
  const KernelSpan span(stream, SpanKind::REDUCE, "column_sum", 0,
                        static_cast<double>(x.num_bytes() + output.num_bytes()));
  if (stream.on_cuda()) return cuda::ColumnSum(output, x, accumulate, stream);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = Compute<T>;
    const T* from = x.as<T>();
    SumRowBlocks<C>(rows, columns, stream, output.as<C>(), accumulate,
                    [=](int64_t begin, int64_t end, C* partial) {
                      for (int64_t r = begin; r < end; ++r) {
                        for (int64_t c = 0; c < columns; ++c)
                          partial[c] += Load(from[r * columns + c]);
                      }
                    });
  });
}

void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  TANDEM_CHECK(output.is_dense() && a.is_dense() && b.is_dense());
  TANDEM_CHECK(a.shape == b.shape) << a.shape << " and " << b.shape;
  const int64_t rows = a.shape.num_rows(), columns = a.shape[-1];
  TANDEM_CHECK_EQ(output.num_elements(), rows);
  const KernelSpan span(stream, SpanKind::REDUCE, "row_dot", 0,
                        static_cast<double>(output.num_bytes() + a.num_bytes() + b.num_bytes()));
  if (stream.on_cuda()) return cuda::RowDot(output, a, b, stream);
  WithStorageTypes(a.dtype, b.dtype, [&](auto zero_a, auto zero_b) {
    using A = decltype(zero_a);
    using B = decltype(zero_b);
    using C = Compute<A>;
    const A* x = a.as<A>();
    const B* y = b.as<B>();
    C* out = output.as<C>();
    ParallelRows(stream, rows, columns, [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const A* xr = x + r * columns;
          const B* yr = y + r * columns;
          out[r] = LaneSum<C>(columns, [=](int64_t i) { return Load(xr[i]) * Load(yr[i]); });
        }
      });
    });
  });
}

void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate,
               Stream& stream) {
  TANDEM_CHECK(output.is_dense() && x.is_dense() && scale.is_dense());
  TANDEM_CHECK_EQ(output.num_elements(), x.num_elements());
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  TANDEM_CHECK_EQ(scale.num_elements(), rows);
  const KernelSpan span(stream, SpanKind::REDUCE, "scale_rows", 0,
                        static_cast<double>((accumulate ? 2 : 1) * output.num_bytes() +
                                            x.num_bytes() + scale.num_bytes()));
  if (stream.on_cuda()) return cuda::ScaleRows(output, x, scale, accumulate, stream);
  WithStorageTypes(output.dtype, x.dtype, [&](auto zero_out, auto zero_x) {
    using O = decltype(zero_out);
    using X = decltype(zero_x);
    using C = Compute<O>;
    const X* from = x.as<X>();
    const C* factor = scale.as<C>();
    O* out = output.as<O>();
    ParallelRows(stream, rows, columns, [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t r = begin; r < end; ++r) {
          const C f = factor[r];
          O* to = out + r * columns;
#pragma GCC ivdep
          for (int64_t c = 0; c < columns; ++c) {
            const C value = Load(from[r * columns + c]) * f;
            to[c] = Store<O>(accumulate ? Load(to[c]) + value : value);
          }
        }
      });
    });
  });
}

double Sum(const ArrayView& x, Stream& stream) {
  TANDEM_CHECK(x.is_dense()) << x.shape;
  if (stream.on_cuda()) return cuda::Sum(x, stream);
  return BlockSum(x, stream, [](double v) { return v; });
}

void Sum(const ArrayView& output, const ArrayView& x, Stream& stream) {
  TANDEM_CHECK(output.num_elements() == 1 && output.dtype == x.dtype)
      << NameOf(output.dtype) << " " << output.shape;
  TANDEM_CHECK(x.is_dense()) << x.shape;
  if (stream.on_cuda()) return cuda::Sum(output, x, stream);
  Fill(output, Sum(x, stream), stream);
}

double SumOfSquares(const ArrayView& x, Stream& stream) {
  TANDEM_CHECK(x.is_dense()) << x.shape;
  if (stream.on_cuda()) return cuda::SumOfSquares(x, stream);
  return BlockSum(x, stream, Square);
}

template <class T>
double SquaredNorm(const T* x, int64_t n) {
  return BlockTotal(x, n, Square);
}
template double SquaredNorm(const float*, int64_t);
template double SquaredNorm(const double*, int64_t);

}  // namespace tandem::kernels
