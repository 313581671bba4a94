#include "kernels/segment.h"

#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

constexpr int64_t kStrip = 64;  // columns that are summed together, in registers

void CheckShapes(const ArrayView& packed, const ArrayView& segments, const ArrayView& offsets) {
  TANDEM_CHECK(packed.dtype == segments.dtype)
      << NameOf(packed.dtype) << " and " << NameOf(segments.dtype);
  TANDEM_CHECK(packed.is_dense() && segments.is_dense() && offsets.is_dense());
  TANDEM_CHECK(packed.shape.num_dims() == 2 && segments.shape.num_dims() == 2 &&
               packed.shape[1] == segments.shape[1])
      << packed.shape << " and " << segments.shape;
  TANDEM_CHECK_EQ(offsets.num_elements(), segments.shape[0] + 1);
  TANDEM_CHECK(segments.shape[0] > 0 || packed.shape[0] == 0) << packed.shape << " of no segment";
}

void CheckOffsets(const int64_t* offset, int64_t num_segments, int64_t num_rows) {
  TANDEM_CHECK(offset[0] == 0 && offset[num_segments] == num_rows)
      << "offsets " << offset[0] << " to " << offset[num_segments] << " of " << num_rows << " rows";
  for (int64_t s = 0; s < num_segments; ++s) {
    TANDEM_CHECK_LE(offset[s], offset[s + 1]) << "segment " << s;
  }
}

template <class C>
inline C FactorOf(int64_t num_rows) {
  return num_rows == 0 ? C(0) : C(1) / static_cast<C>(num_rows);
}

int64_t CostOfSegment(const ArrayView& packed, const ArrayView& segments) {
  return packed.shape[1] * (1 + packed.shape[0] / std::max<int64_t>(1, segments.shape[0]));
}

// to[c] = Store(sum of rows[r, c] * factor), for `width` <= kStrip columns.
template <class T>
inline void MeanOfStrip(const T* rows, int64_t count, int64_t columns, int64_t width, T* to) {
  using C = Compute<T>;
  C sum[kStrip] = {};
  for (int64_t r = 0; r < count; ++r) {
#pragma GCC ivdep
    for (int64_t c = 0; c < width; ++c) sum[c] += Load(rows[r * columns + c]);
  }
  const C factor = FactorOf<C>(count);
  for (int64_t c = 0; c < width; ++c) to[c] = Store<T>(sum[c] * factor);
}

}  // namespace

void SegmentMean(const ArrayView& output, const ArrayView& x, const ArrayView& offsets,
                 Stream& stream) {
  CheckShapes(x, output, offsets);
  const KernelSpan span(stream, SpanKind::REDUCE, "segment_mean", 0,
                        static_cast<double>(x.num_bytes() + output.num_bytes()));
  if (stream.on_cuda()) return cuda::SegmentMean(output, x, offsets, stream);
  const int64_t num_segments = output.shape[0], columns = x.shape[1];
  const int64_t* offset = offsets.as<int64_t>();
  CheckOffsets(offset, num_segments, x.shape[0]);
  WithStorageType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.as<T>();
    T* to = output.as<T>();
    ParallelRows(stream, num_segments, CostOfSegment(x, output), [=](int64_t begin, int64_t end) {
      Vectorised([=] {
        for (int64_t s = begin; s < end; ++s) {
          for (int64_t c = 0; c < columns; c += kStrip) {
            MeanOfStrip(from + offset[s] * columns + c, offset[s + 1] - offset[s], columns,
                        std::min(kStrip, columns - c), to + s * columns + c);
          }
        }
      });
    });
  });
}

void SegmentMeanBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                         const ArrayView& offsets, Stream& stream) {
  CheckShapes(grad_input, grad_output, offsets);
  const KernelSpan span(stream, SpanKind::REDUCE, "segment_mean_backward", 0,
                        static_cast<double>(grad_input.num_bytes() + grad_output.num_bytes()));
  if (stream.on_cuda()) return cuda::SegmentMeanBackward(grad_input, grad_output, offsets, stream);
  const int64_t num_segments = grad_output.shape[0], columns = grad_output.shape[1];
  const int64_t* offset = offsets.as<int64_t>();
  CheckOffsets(offset, num_segments, grad_input.shape[0]);
  WithStorageType(grad_input.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = Compute<T>;
    const T* from = grad_output.as<T>();
    T* to = grad_input.as<T>();
    ParallelRows(stream, num_segments, CostOfSegment(grad_input, grad_output),
                 [=](int64_t begin, int64_t end) {
                   Vectorised([=] {
                     for (int64_t s = begin; s < end; ++s) {
                       const C factor = FactorOf<C>(offset[s + 1] - offset[s]);
                       for (int64_t r = offset[s]; r < offset[s + 1]; ++r) {
#pragma GCC ivdep
                         for (int64_t c = 0; c < columns; ++c) {
                           to[r * columns + c] = Store<T>(Load(from[s * columns + c]) * factor);
                         }
                       }
                     }
                   });
                 });
  });
}

}  // namespace tandem::kernels
