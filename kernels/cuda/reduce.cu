#include <limits>

#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/device/total.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

// sums[b, c] = sum of x[r, c] over the rows of block b, plus the old value if `accumulate`. Threads
// form [rows, columns]; the sums of the rows' threads are folded in halves.
// REQUIRES: one block of rows if `accumulate`.
template <class T, bool kPacks>
__global__ void ColumnSumKernel(const T* x, int64_t rows, int64_t columns, int64_t block_rows,
                                int column_threads, int64_t num_parts, bool accumulate,
                                float* sums) {
  constexpr int kWidth = kPackOf<T>;
  __shared__ float room[kReduceThreads][kWidth];
  const int64_t part_columns = int64_t{column_threads} * kWidth,
                column_parts = CeilDiv(columns, part_columns);
  const int row_threads = kReduceThreads / column_threads, thread = static_cast<int>(threadIdx.x);
  const int row_thread = thread / column_threads;
  for (int64_t part = blockIdx.x; part < num_parts; part += gridDim.x) {
    const int64_t block = part / column_parts, begin = block * block_rows;
    const int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
    const int64_t column = part % column_parts * part_columns + thread % column_threads * kWidth,
                  left = columns - column;
    float sum[kWidth] = {};
    if (left > 0) {
      AddRows<kPacks>(
          begin + row_thread, end, row_threads, left,
          [&](int64_t r) { return x + r * columns + column; }, sum);
    }
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) room[thread][e] = sum[e];
    for (int half = row_threads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row_thread >= half) continue;
      TANDEM_UNROLL
      for (int e = 0; e < kWidth; ++e) room[thread][e] += room[thread + half * column_threads][e];
    }
    if (row_thread == 0 && left > 0) {
      float* to = sums + block * columns + column;
      TANDEM_UNROLL
      for (int e = 0; e < kWidth; ++e) {
        if (e < left) to[e] = accumulate ? to[e] + room[thread][e] : room[thread][e];
      }
    }
    __syncthreads();
  }
}

template <class T>
void SumRowBlocks(const ArrayView& output, const T* x, int64_t rows, bool first_pass,
                  bool accumulate, float* sums, Stream& stream) {
  const int64_t columns = output.num_elements();
  const int column_threads = ColumnThreads(CeilDiv(columns, kPackOf<T>));
  const int64_t num_parts =
      ColumnSumBlocks(rows, first_pass) * CeilDiv(columns, int64_t{column_threads} * kPackOf<T>);
  Launch(stream, {"column_sum", output},
         Grid{static_cast<unsigned>(std::min(num_parts, kMostReduceBlocks)), kReduceThreads},
         TakesPacks<T>(x, columns) ? ColumnSumKernel<T, true> : ColumnSumKernel<T, false>, x, rows,
         columns, ColumnSumRows(first_pass), column_threads, num_parts, accumulate, sums);
}

// The dot product of two rows, by `row_threads` neighbouring threads: a part of a warp, or the
// block.
template <class A, class B, bool kPacks>
__global__ void RowDotKernel(const A* a, const B* b, int64_t rows, int64_t columns, int row_threads,
                             float* out) {
  constexpr int kWidth = kPackOf<A> < kPackOf<B> ? kPackOf<A> : kPackOf<B>;
  __shared__ float room[kReduceThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x) % row_threads;
  const int block_rows = kReduceThreads / row_threads,
            in_block = static_cast<int>(threadIdx.x) / row_threads;
  for (int64_t first = int64_t{blockIdx.x} * block_rows; first < rows;
       first += int64_t{gridDim.x} * block_rows) {
    const int64_t row = first + in_block;
    float sums[kWidth] = {};
    for (int64_t c = row < rows ? int64_t{thread} * kWidth : columns; c < columns;
         c += int64_t{row_threads} * kWidth) {
      float x[kWidth], y[kWidth];
      ReadElements<kPacks>(a + row * columns + c, columns - c, x);
      ReadElements<kPacks>(b + row * columns + c, columns - c, y);
      TANDEM_UNROLL
      for (int e = 0; e < kWidth; ++e) sums[e] = fmaf(x[e], y[e], sums[e]);
    }
    float sum = 0;
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) sum += sums[e];
    if (row_threads == kReduceThreads) {
      sum = BlockSum(sum, room);
    } else {
      for (int distance = row_threads / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (thread == 0 && row < rows) out[row] = sum;
  }
}

struct Times {
  __device__ float operator()(float x, float scale) const { return x * scale; }
};

struct PlusTimes {
  __device__ float operator()(float old, float x, float scale) const { return fmaf(x, scale, old); }
};

template <bool kSquares>
__global__ void BlockTotalKernel(const float* x, int64_t count, bool packs, double* partials) {
  __shared__ double room[kReduceThreads / kWarp];
  const int64_t begin = int64_t{blockIdx.x} * kSumBlock;
  const double total = BlockTotal<kSquares>(
      x + begin, count - begin < kSumBlock ? count - begin : kSumBlock, packs, room);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// T is the type that the total is rounded to.
template <class T>
__global__ void SumOfPartialsKernel(const double* partials, int64_t count, T* total) {
  __shared__ double room[kReduceThreads / kWarp];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kReduceThreads) sum += partials[i];
  sum = BlockSum(sum, room);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}

// The totals of all blocks of x, in memory with room for one more number.
template <bool kSquares>
std::shared_ptr<Buffer> BlockTotals(const ArrayView& x, const Operation& operation,
                                    Stream& stream) {
  const int64_t num_blocks = CeilDiv(x.num_elements(), kSumBlock);
  auto memory = DeviceScratch(stream, static_cast<size_t>(num_blocks + 1) * sizeof(double));
  const float* data = x.as<float>();
  Launch(stream, operation, Grid{static_cast<unsigned>(num_blocks), kReduceThreads},
         BlockTotalKernel<kSquares>, data, x.num_elements(), TakesPacks<float>(data, 0),
         static_cast<double*>(memory->data()));
  return memory;
}

template <bool kSquares>
double Total(const ArrayView& x, const Operation& operation, Stream& stream) {
  const auto memory = BlockTotals<kSquares>(x, operation, stream);
  return SumOfPartials(static_cast<double*>(memory->data()), CeilDiv(x.num_elements(), kSumBlock),
                       operation, stream);
}

}  // namespace

void ColumnSum(const ArrayView& output, const ArrayView& x, bool accumulate, Stream& stream) {
  int64_t rows = x.shape.num_rows();
  const int64_t columns = x.shape[-1], num_blocks = ColumnSumBlocks(rows, true);
  float* sums = output.as<float>();
  const auto reduce_first = [&](float* to, bool add) {
    WithDeviceType(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      SumRowBlocks<T>(output, x.as<T>(), rows, true, add, to, stream);
    });
  };
  if (num_blocks == 1) return reduce_first(sums, accumulate);
  // Each pass sums the results of the pass before, from one half of the memory into the other.
  const auto memory = DeviceScratch(
      stream, static_cast<size_t>((num_blocks + ColumnSumBlocks(num_blocks, false)) * columns) *
                  sizeof(float));
  float* from = static_cast<float*>(memory->data());
  float* to = from + num_blocks * columns;
  reduce_first(from, false);
  for (rows = num_blocks; ColumnSumBlocks(rows, false) > 1; rows = ColumnSumBlocks(rows, false)) {
    SumRowBlocks<float>(output, from, rows, false, false, to, stream);
    std::swap(from, to);
  }
  SumRowBlocks<float>(output, from, rows, false, accumulate, sums, stream);
}

void RowDot(const ArrayView& output, const ArrayView& a, const ArrayView& b, Stream& stream) {
  const int64_t rows = a.shape.num_rows(), columns = a.shape[-1];
  WithDeviceType(a.dtype, [&](auto zero_a) {
    WithDeviceType(b.dtype, [&](auto zero_b) {
      using A = decltype(zero_a);
      using B = decltype(zero_b);
      const int row_threads = RowThreads(CeilDiv(columns, std::min(kPackOf<A>, kPackOf<B>)));
      const int64_t blocks =
          std::min(CeilDiv(rows, kReduceThreads / row_threads), kMostReduceBlocks);
      const bool packs = TakesPacks<A>(a.data, columns) && TakesPacks<B>(b.data, columns);
      Launch(stream, {"row_dot", output}, Grid{static_cast<unsigned>(blocks), kReduceThreads},
             packs ? RowDotKernel<A, B, true> : RowDotKernel<A, B, false>, a.as<A>(), b.as<B>(),
             rows, columns, row_threads, output.as<float>());
    });
  });
}

void ScaleRows(const ArrayView& output, const ArrayView& x, const ArrayView& scale, bool accumulate,
               Stream& stream) {
  const PerRow<float> factor{scale.as<float>(), x.shape[-1]};
  WithDeviceType(output.dtype, [&](auto zero_out) {
    WithDeviceType(x.dtype, [&](auto zero_x) {
      using O = decltype(zero_out);
      using X = decltype(zero_x);
      const Elements<X> from{x.as<X>()};
      if (accumulate)
        Map<O>({"scale_rows", output}, stream, PlusTimes{}, Elements<O>{output.as<O>()}, from,
               factor);
      else
        Map<O>({"scale_rows", output}, stream, Times{}, from, factor);
    });
  });
}

double SumOfPartials(const double* partials, int64_t count, const Operation& operation,
                     Stream& stream) {
  const auto memory = DeviceScratch(stream, sizeof(double));
  double* total = static_cast<double*>(memory->data());
  Launch(stream, operation, Grid{1, kReduceThreads}, SumOfPartialsKernel<double>, partials, count,
         total);
  double found = std::numeric_limits<double>::quiet_NaN();
  return stream.CopyToHost(&found, total, sizeof(found)).ok()
             ? found
             : std::numeric_limits<double>::quiet_NaN();
}

void Sum(const ArrayView& output, const ArrayView& x, Stream& stream) {
  const Operation operation{"sum", x};
  const auto memory = BlockTotals<false>(x, operation, stream);
  Launch(stream, operation, Grid{1, kReduceThreads}, SumOfPartialsKernel<float>,
         static_cast<const double*>(memory->data()), CeilDiv(x.num_elements(), kSumBlock),
         output.as<float>());
}

double Sum(const ArrayView& x, Stream& stream) { return Total<false>(x, {"sum", x}, stream); }

double SumOfSquares(const ArrayView& x, Stream& stream) {
  return Total<true>(x, {"sum_of_squares", x}, stream);
}

}  // namespace tandem::kernels::cuda
