#include "kernels/rotary.h"

#include <algorithm>

#include "kernels/cpu/vector/parallel.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

// Turns the pairs of one head.
template <class S, class T>
inline void TurnHead(const S* from, S* to, const T* cosines, const T* sines, T sign,
                     int64_t pairs) {
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const T a = Load(from[i]), b = Load(from[i + pairs]), sine = sign * sines[i];
    to[i] = Store<S>(a * cosines[i] - b * sine);
    to[i + pairs] = Store<S>(b * cosines[i] + a * sine);
  }
}

}  // namespace

void Rotate(const RotateArgs& args, Stream& stream) {
  const Shape& shape = args.input.shape;
  TANDEM_CHECK(shape.num_dims() == 3 && shape[2] % 2 == 0 && args.output.shape == shape) << shape;
  TANDEM_CHECK(args.input.is_dense() && args.output.is_dense() && args.table.is_dense());
  TANDEM_CHECK(args.positions.is_dense() && args.positions.num_elements() == shape[0])
      << args.positions.shape;
  TANDEM_CHECK(args.table.shape.num_dims() == 2 && args.table.shape[1] == shape[2])
      << args.table.shape;
  TANDEM_CHECK(args.turned >= 0 && args.turned <= shape[1]) << args.turned;
  const int64_t heads = shape[1], width = shape[2], pairs = width / 2;
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "rotate", 0,
                        static_cast<double>(2 * args.input.num_bytes()));
  if (stream.on_cuda()) return cuda::Rotate(args, stream);
  const int64_t* const positions = args.positions.as<int64_t>();
  WithStorageType(args.input.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const S* const input = args.input.as<S>();
    S* const output = args.output.as<S>();
    const T* const table = args.table.as<T>();
    const T sign = args.back ? -1 : 1;
    ParallelRows(stream, shape[0], heads * width, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        TANDEM_CHECK(positions[t] >= 0 && positions[t] < args.table.shape[0]) << positions[t];
        const T* const cosines = table + positions[t] * width;
        const S* const from = input + t * heads * width;
        S* const to = output + t * heads * width;
        for (int64_t h = 0; h < args.turned; ++h)
          TurnHead(from + h * width, to + h * width, cosines, cosines + pairs, sign, pairs);
        if (from != to) {
          std::copy(from + args.turned * width, from + heads * width, to + args.turned * width);
        }
      }
    });
  });
}

}  // namespace tandem::kernels
