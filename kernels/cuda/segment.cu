#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/kernels.h"

// A thread takes a few neighbouring columns of one segment and goes over the segment's rows.
namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 256;

struct Segments {
  const int64_t* offsets;
  int64_t count, rows, columns;
};

// The rows of one segment, and the columns of one thread.
struct Part {
  int64_t segment, begin, end, column;

  // Like the CPU's: 1 / (number of rows), and 0 without rows.
  __device__ float Factor() const {
    return begin == end ? 0.0f : 1.0f / static_cast<float>(end - begin);
  }
};

// Returns false if the thread has no part.
template <int kWidth>
__device__ inline bool FindPart(const Segments& segments, Part* part) {
  const int64_t packs = CeilDiv(segments.columns, kWidth),
                i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= segments.count * packs) return false;
  part->segment = i / packs;
  part->column = i % packs * kWidth;
  part->begin = segments.offsets[part->segment];
  part->end = segments.offsets[part->segment + 1];
  DeviceCheck(part->begin <= part->end && part->end <= segments.rows);
  DeviceCheck(part->segment == 0 ? part->begin == 0 : part->begin >= 0);
  DeviceCheck(part->segment + 1 < segments.count || part->end == segments.rows);
  return true;
}

template <class T, bool kPacks>
__global__ void MeanKernel(Segments segments, const T* x, T* output) {
  constexpr int kWidth = kPackOf<T>;
  Part part;
  if (!FindPart<kWidth>(segments, &part)) return;
  const int64_t columns = segments.columns, left = columns - part.column;
  float sum[kWidth] = {};
  AddRows<kPacks>(
      part.begin, part.end, 1, left, [&](int64_t r) { return x + r * columns + part.column; }, sum);
  const float factor = part.Factor();
  TANDEM_UNROLL
  for (int e = 0; e < kWidth; ++e) sum[e] *= factor;
  WriteElements<kPacks>(output + part.segment * columns + part.column, left, sum);
}

template <class T, bool kPacks>
__global__ void MeanBackwardKernel(Segments segments, const T* grad_output, T* grad_input) {
  constexpr int kWidth = kPackOf<T>;
  Part part;
  if (!FindPart<kWidth>(segments, &part)) return;
  const int64_t columns = segments.columns, left = columns - part.column;
  float grad[kWidth];
  ReadElements<kPacks>(grad_output + part.segment * columns + part.column, left, grad);
  const float factor = part.Factor();
  TANDEM_UNROLL
  for (int e = 0; e < kWidth; ++e) grad[e] *= factor;
  for (int64_t r = part.begin; r < part.end; ++r)
    WriteElements<kPacks>(grad_input + r * columns + part.column, left, grad);
}

template <class T>
Grid GridOf(const Segments& segments) {
  const int64_t threads = segments.count * CeilDiv(segments.columns, kPackOf<T>);
  return {static_cast<unsigned>(CeilDiv(threads, kThreads)), kThreads};
}

}  // namespace

void SegmentMean(const ArrayView& output, const ArrayView& x, const ArrayView& offsets,
                 Stream& stream) {
  const Segments segments{offsets.as<int64_t>(), output.shape[0], x.shape[0], x.shape[1]};
  WithDeviceType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs =
        TakesPacks<T>(x.data, segments.columns) && TakesPacks<T>(output.data, segments.columns);
    Launch(stream, {"segment_mean", x}, GridOf<T>(segments),
           packs ? MeanKernel<T, true> : MeanKernel<T, false>, segments, x.as<T>(), output.as<T>());
  });
}

void SegmentMeanBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                         const ArrayView& offsets, Stream& stream) {
  const Segments segments{offsets.as<int64_t>(), grad_output.shape[0], grad_input.shape[0],
                          grad_input.shape[1]};
  WithDeviceType(grad_input.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packs = TakesPacks<T>(grad_input.data, segments.columns) &&
                       TakesPacks<T>(grad_output.data, segments.columns);
    Launch(stream, {"segment_mean_backward", grad_input}, GridOf<T>(segments),
           packs ? MeanBackwardKernel<T, true> : MeanBackwardKernel<T, false>, segments,
           grad_output.as<T>(), grad_input.as<T>());
  });
}

}  // namespace tandem::kernels::cuda
