#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 256;

template <class S>
struct Turn {
  const S* input;
  S* output;
  const int64_t* positions;
  const float* table;
  int64_t rows, heads, pairs, turned, num_positions;
  float sign;
};

// One thread per pair of elements. A thread reads its pair before it writes, so the output may be
// the input.
template <class S>
__global__ void __launch_bounds__(kThreads) RotateKernel(Turn<S> t) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= t.rows * t.heads * t.pairs) return;
  const int64_t pair = i % t.pairs, head = i / t.pairs % t.heads, row = i / t.pairs / t.heads;
  const int64_t first = (row * t.heads + head) * 2 * t.pairs + pair, second = first + t.pairs;
  const S a = t.input[first], b = t.input[second];
  if (head >= t.turned) {
    t.output[first] = a;
    t.output[second] = b;
    return;
  }
  const int64_t position = t.positions[row];
  DeviceCheck(position >= 0 && position < t.num_positions);
  const float cosine = t.table[position * 2 * t.pairs + pair],
              sine = t.sign * t.table[position * 2 * t.pairs + t.pairs + pair];
  const float x = Load(a), y = Load(b);
  t.output[first] = Store<S>(fmaf(x, cosine, -(y * sine)));
  t.output[second] = Store<S>(fmaf(y, cosine, x * sine));
}

}  // namespace

void Rotate(const RotateArgs& args, Stream& stream) {
  const Shape& shape = args.input.shape;
  WithDeviceType(args.input.dtype, [&](auto zero) {
    using S = decltype(zero);
    const Turn<S> turn{.input = args.input.as<S>(),
                       .output = args.output.as<S>(),
                       .positions = args.positions.as<int64_t>(),
                       .table = args.table.as<float>(),
                       .rows = shape[0],
                       .heads = shape[1],
                       .pairs = shape[2] / 2,
                       .turned = args.turned,
                       .num_positions = args.table.shape[0],
                       .sign = args.back ? -1.0f : 1.0f};
    const int64_t blocks = CeilDiv(args.input.num_elements() / 2, kThreads);
    Launch(stream, {"rotate", args.output}, {dim3(static_cast<unsigned>(blocks)), dim3(kThreads)},
           RotateKernel<S>, turn);
  });
}

}  // namespace tandem::kernels::cuda
