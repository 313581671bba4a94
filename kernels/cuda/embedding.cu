#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/embedding_plan.h"
#include "kernels/cuda/plan/reduce_plan.h"
#include "kernels/cuda/stable_sort.cuh"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 256;
// Several words per thread, because loads of the table wait for loads of the index.
constexpr int kGatherWords = 4;

template <class Word>
__global__ void GatherKernel(Word* output, const Word* table, const int64_t* index, int64_t count,
                             int64_t row_words, int64_t num_rows) {
  Word words[kGatherWords];
  const int64_t first = int64_t{blockIdx.x} * kThreads * kGatherWords + threadIdx.x;
  TANDEM_UNROLL
  for (int k = 0; k < kGatherWords; ++k) {
    const int64_t i = first + k * kThreads;
    if (i >= count * row_words) continue;
    const int64_t row = index[i / row_words];
    DeviceCheck(row >= 0 && row < num_rows);
    words[k] = table[row * row_words + i % row_words];
  }
  TANDEM_UNROLL
  for (int k = 0; k < kGatherWords; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < count * row_words) output[i] = words[k];
  }
}

__global__ void LocateRowsKernel(int64_t* here, float* factor, const int64_t* index, int64_t rows,
                                 int64_t first, int64_t count) {
  const int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= rows) return;
  const int64_t row = index[r] - first;
  const bool is_here = row >= 0 && row < count;
  here[r] = is_here ? row : 0;
  factor[r] = is_here ? 1.0f : 0.0f;
}

// Calls body(Word{}) with the word type of 1, 2, 4, 8 or 16 bytes.
template <class Body>
void WithWord(size_t bytes, const Body& body) {
  switch (bytes) {
    case 16:
      return body(uint4{});
    case 8:
      return body(uint64_t{});
    case 4:
      return body(uint32_t{});
    case 2:
      return body(uint16_t{});
    default:
      body(uint8_t{});
  }
}

// The sorted places of one value: [begin, end).
struct Segment {
  uint32_t begin, end;
};

// Writes only the segments of values that occur.
__global__ void FindSegmentsKernel(const uint32_t* keys, int64_t count, Segment* segments) {
  const int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (p >= count) return;
  const uint32_t key = keys[p];
  if (p == 0 || keys[p - 1] != key) segments[key].begin = static_cast<uint32_t>(p);
  if (p + 1 == count || keys[p + 1] != key) segments[key].end = static_cast<uint32_t>(p + 1);
}

struct Scatter {
  const uint32_t *keys, *places;
  const Segment* segments;
  int64_t count, columns;
  bool accumulate;
  float *output, *partials;
};

template <bool kPacks, int kWidth>
__device__ inline void WriteOutput(const Scatter& scatter, uint32_t key, int64_t column,
                                   float (&sum)[kWidth]) {
  float* to = scatter.output + int64_t{key} * scatter.columns + column;
  const int64_t left = scatter.columns - column;
  if (scatter.accumulate) {
    float old[kWidth];
    ReadElements<kPacks>(to, left, old);
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) sum[e] = old[e] + sum[e];
  }
  WriteElements<kPacks>(to, left, sum);
}

// A thread handles one sorted place and kWidth columns. Threads of places where a piece starts add
// the piece's rows.
template <class T, bool kPacks>
__global__ void SumPiecesKernel(Scatter scatter, const T* rows) {
  constexpr int kWidth = kPackOf<T>;
  const int64_t row_packs = CeilDiv(scatter.columns, kWidth);
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t head = i / row_packs, column = i % row_packs * kWidth;
  if (head >= scatter.count) return;
  const uint32_t key = scatter.keys[head];
  const Segment segment = scatter.segments[key];
  if ((head - segment.begin) % kPieceRows != 0) return;
  const int64_t end = head + kPieceRows < segment.end ? head + kPieceRows : segment.end;
  const int64_t left = scatter.columns - column;
  float sum[kWidth] = {};
  AddRows<kPacks>(
      head, end, 1, left,
      [&](int64_t p) { return rows + scatter.places[p] * scatter.columns + column; }, sum);
  if (segment.end - segment.begin <= kPieceRows)
    return WriteOutput<kPacks>(scatter, key, column, sum);
  float* partial =
      scatter.partials + PartialSlot(head, head == segment.begin) * scatter.columns + column;
  WriteElements<kPacks>(partial, left, sum);
}

constexpr int kCombineThreads = 512;

// Adds a segment's partial sums. There is one block per window of kPieceRows places; the block
// looks for the segment of several pieces that starts in its window. Threads form [pieces,
// columns]. Each thread adds a run of neighbouring pieces, and the runs are folded in halves.
template <bool kPacks>
__global__ void CombinePiecesKernel(Scatter scatter, int column_threads) {
  constexpr int kWidth = kPackOf<float>;
  __shared__ float room[kCombineThreads][kWidth];
  static_assert(kPieceRows == kWarp);
  const int64_t place = int64_t{blockIdx.x} * kPieceRows + threadIdx.x % kWarp;
  const bool starts = place + kPieceRows < scatter.count &&
                      scatter.segments[scatter.keys[place]].begin == place &&
                      scatter.segments[scatter.keys[place]].end > place + kPieceRows;
  const unsigned starting = __ballot_sync(kAllLanes, starts);
  if (starting == 0) return;  // the same in every warp
  const int64_t head = int64_t{blockIdx.x} * kPieceRows + __ffs(static_cast<int>(starting)) - 1;
  const uint32_t key = scatter.keys[head];
  const int64_t pieces = CeilDiv(int64_t{scatter.segments[key].end} - head, kPieceRows);
  const int runs = kCombineThreads / column_threads,
            run = static_cast<int>(threadIdx.x) / column_threads;
  const int64_t run_pieces = CeilDiv(pieces, runs), first = run * run_pieces;
  const int64_t end = first + run_pieces < pieces ? first + run_pieces : pieces;
  const int64_t step = int64_t{gridDim.y} * column_threads * kWidth;
  for (int64_t columns = int64_t{blockIdx.y} * column_threads * kWidth; columns < scatter.columns;
       columns += step) {
    const int64_t column = columns + static_cast<int>(threadIdx.x) % column_threads * kWidth,
                  left = scatter.columns - column;
    float sum[kWidth] = {};
    const auto partial = [&](int64_t piece) {
      return scatter.partials +
             PartialSlot(head + piece * kPieceRows, piece == 0) * scatter.columns + column;
    };
    if (left > 0) AddRows<kPacks>(first, end, 1, left, partial, sum);
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) room[threadIdx.x][e] = sum[e];
    for (int half = runs / 2; half > 0; half /= 2) {
      __syncthreads();
      if (run >= half) continue;
      TANDEM_UNROLL
      for (int e = 0; e < kWidth; ++e)
        room[threadIdx.x][e] += room[static_cast<int>(threadIdx.x) + half * column_threads][e];
    }
    if (run == 0 && left > 0) WriteOutput<kPacks>(scatter, key, column, room[threadIdx.x]);
    __syncthreads();
  }
}

template <class T>
void ScatterSorted(const Scatter& scatter, const ArrayView& output, const T* rows, Stream& stream) {
  const bool packs =
      TakesPacks<T>(rows, scatter.columns) && TakesPacks<float>(scatter.output, scatter.columns);
  const int64_t threads = scatter.count * CeilDiv(scatter.columns, kPackOf<T>);
  Launch(stream, {"scatter_add_rows", output},
         Grid{static_cast<unsigned>(CeilDiv(threads, kThreads)), kThreads},
         packs ? SumPiecesKernel<T, true> : SumPiecesKernel<T, false>, scatter, rows);
  if (scatter.count <= kPieceRows) return;
  const int64_t row_packs = CeilDiv(scatter.columns, kPackOf<float>);
  const int column_threads = ColumnThreads(row_packs);
  const dim3 blocks(
      static_cast<unsigned>(CeilDiv(scatter.count, kPieceRows)),
      static_cast<unsigned>(std::min<int64_t>(64, CeilDiv(row_packs, column_threads))));
  Launch(stream, {"scatter_add_rows", output}, Grid{blocks, kCombineThreads},
         packs ? CombinePiecesKernel<true> : CombinePiecesKernel<false>, scatter, column_threads);
}

}  // namespace

void GatherRows(const ArrayView& output, const ArrayView& table, const ArrayView& index,
                Stream& stream) {
  const int64_t count = index.num_elements(), num_rows = table.shape.num_rows();
  const size_t row_bytes = static_cast<size_t>(table.shape[-1]) * SizeOf(table.dtype);
  if (row_bytes == 0) return;
  const size_t word_bytes = RowWordBytes(row_bytes, reinterpret_cast<uintptr_t>(output.data),
                                         reinterpret_cast<uintptr_t>(table.data));
  const int64_t row_words = static_cast<int64_t>(row_bytes / word_bytes);
  const int64_t blocks = CeilDiv(count * row_words, int64_t{kThreads} * kGatherWords);
  WithWord(word_bytes, [&](auto zero) {
    using Word = decltype(zero);
    Launch(stream, {"gather_rows", output}, Grid{static_cast<unsigned>(blocks), kThreads},
           GatherKernel<Word>, static_cast<Word*>(output.data),
           static_cast<const Word*>(table.data), index.as<int64_t>(), count, row_words, num_rows);
  });
}

void LocateRows(const ArrayView& here, const ArrayView& factor, const ArrayView& index,
                int64_t first, int64_t count, Stream& stream) {
  const int64_t rows = index.num_elements();
  Launch(stream, {"locate_rows", here},
         {dim3(static_cast<unsigned>(CeilDiv(rows, kThreads))), dim3(kThreads)}, LocateRowsKernel,
         here.as<int64_t>(), factor.as<float>(), index.as<int64_t>(), rows, first, count);
}

void ScatterAddRows(const ArrayView& output, const ArrayView& rows, const ArrayView& index,
                    bool accumulate, Stream& stream) {
  const int64_t count = index.num_elements(), num_rows = output.shape.num_rows(),
                columns = output.shape[-1];
  if (!accumulate && output.num_bytes() > 0 && stream.status().ok()) {
    stream.Fail(tandem::cuda::SetBytesAsync(output.data, 0, output.num_bytes(),
                                            stream.device().index, stream.queue()));
  }
  if (count == 0 || columns == 0) return;
  const SortedIndex sorted = StableSort(index, num_rows, stream);
  const auto segments = DeviceScratch(stream, static_cast<size_t>(num_rows) * sizeof(Segment));
  const auto partials =
      DeviceScratch(stream, static_cast<size_t>(NumPartialSlots(count) * columns) * sizeof(float));
  const Scatter scatter{sorted.keys,
                        sorted.places,
                        static_cast<const Segment*>(segments->data()),
                        count,
                        columns,
                        accumulate,
                        output.as<float>(),
                        static_cast<float*>(partials->data())};
  Launch(stream, {"scatter_add_rows", output},
         Grid{static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads}, FindSegmentsKernel,
         sorted.keys, count, static_cast<Segment*>(segments->data()));
  WithDeviceType(rows.dtype, [&](auto zero) {
    using T = decltype(zero);
    ScatterSorted<T>(scatter, output, rows.as<T>(), stream);
  });
}

}  // namespace tandem::kernels::cuda
