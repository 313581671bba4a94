#include "kernels/cuda/device/row.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/softmax.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kMaxThreads = 384;

template <int kPack, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads, kLanes == 0 ? 2 : 4)
    SoftmaxForwardKernel(const float* x, float* output, int64_t rows, int64_t columns,
                         int64_t room_columns, bool aligned) {
  using Row = Team<kLanes>;
  __shared__ float room[kWarp];
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < rows; first += step) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < rows ? columns : 0);
    const HeldRow<float, kPack> held(x + row * columns, part, aligned, SharedMemory<float>(),
                                     room_columns);
    const ExpSum total = RowExpSum<kLanes>(held, part, room);
    const float inverse = 1.0f / total.sum;
    ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) {
      Pack<float, kPack> pack = held.At(column, p);
      for (int i = 0; i < kPack; ++i) pack.values[i] = ExpOf(pack.values[i] - total.max) * inverse;
      WritePack(pack, output + row * columns + column, aligned);
    });
  }
}

template <int kPack, int kLanes>
__global__ void __launch_bounds__(kLanes == 0 ? kMaxThreads : kTeamsThreads, kLanes == 0 ? 2 : 4)
    SoftmaxBackwardKernel(const float* grad_output, const float* output, float* grad_input,
                          int64_t rows, int64_t columns, bool aligned) {
  using Row = Team<kLanes>;
  __shared__ float room[kWarp];
  const int64_t step = int64_t{gridDim.x} * Row::PerBlock();
  for (int64_t first = int64_t{blockIdx.x} * Row::PerBlock(); first < rows; first += step) {
    const int64_t row = first + Row::InBlock();
    const RowPart part = Row::template Part<kPack>(row < rows ? columns : 0);
    const HeldRow<float, kPack> y(output + row * columns, part, aligned),
        grad(grad_output + row * columns, part, aligned);
    float dot = 0;
    ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) {
      const Pack<float, kPack> a = y.At(column, p), b = grad.At(column, p);
      for (int i = 0; i < kPack; ++i) dot += a.values[i] * b.values[i];
    });
    dot = Row::Sum(dot, room);
    ForEachPack<PacksHeld(kPack)>(part, [&](int64_t column, int p) {
      const Pack<float, kPack> a = y.At(column, p), b = grad.At(column, p);
      Pack<float, kPack> result;
      for (int i = 0; i < kPack; ++i) result.values[i] = a.values[i] * (b.values[i] - dot);
      WritePack(result, grad_input + row * columns + column, aligned);
    });
  }
}

}  // namespace

void SoftmaxForward(const ArrayView& output, const ArrayView& x, Stream& stream) {
  if (x.num_elements() == 0) return;
  const int64_t rows = x.shape.num_rows(), columns = x.shape[-1];
  const RowPlan plan = PlanRows(columns, kPackOf<float>, kMaxThreads);
  const int64_t room_columns = RoomColumns<float>(plan, columns);
  const Grid grid{dim3(RowBlocks(plan, rows)), dim3(plan.threads), room_columns * sizeof(float)};
  WithPlan<float>(plan, [&](auto pack, auto lanes) {
    Launch(stream, {"softmax_forward", x}, grid,
           SoftmaxForwardKernel<decltype(pack)::value, decltype(lanes)::value>, x.as<float>(),
           output.as<float>(), rows, columns, room_columns, AllTakePacks(x, output));
  });
}

void SoftmaxBackward(const ArrayView& grad_input, const ArrayView& grad_output,
                     const ArrayView& output, Stream& stream) {
  if (output.num_elements() == 0) return;
  const int64_t rows = output.shape.num_rows(), columns = output.shape[-1];
  const RowPlan plan = PlanRows(columns, kPackOf<float>, kMaxThreads);
  const Grid grid{dim3(RowBlocks(plan, rows)), dim3(plan.threads)};
  WithPlan<float>(plan, [&](auto pack, auto lanes) {
    Launch(stream, {"softmax_backward", output}, grid,
           SoftmaxBackwardKernel<decltype(pack)::value, decltype(lanes)::value>,
           grad_output.as<float>(), output.as<float>(), grad_input.as<float>(), rows, columns,
           AllTakePacks(grad_input, grad_output, output));
  });
}

}  // namespace tandem::kernels::cuda
