#include "kernels/cuda/device/dropout_bits.cuh"
#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

constexpr int kDropoutThreads = 256;

struct DropoutShape {
  int64_t rows, columns, blocks_per_row, mask_bytes_per_row;
};

// Maps a warp's kWarp blocks to lanes: kWidth elements per lane and turn, so that the lanes of a
// turn read neighbouring memory. Another lane draws the element's block, unless a lane takes a
// whole block at once.
template <int kWidth>
struct Turn {
  static constexpr int kTurns = kBlockElements / kWidth;
  int lane, element;  // the lane that draws the block, and the element in it

  __device__ Turn(int turn) {
    const int i = (turn * kWarp + static_cast<int>(threadIdx.x) % kWarp) * kWidth;
    lane = i / kBlockElements;
    element = i % kBlockElements;
  }
  template <class V>
  __device__ V FromItsLane(V value) const {
    if constexpr (kWidth == kBlockElements)
      return value;
    else
      return __shfl_sync(kAllLanes, value, lane);
  }
};

// A lane draws one block of the random stream, once per row that uses it. kWidth 1 handles rows
// that start anywhere in a block. A byte of their mask has bits of two blocks, so the last lane
// draws only for its neighbour. Larger kWidth requires rows of whole blocks.
template <class T, int kWidth>
__global__ void DropoutKernel(DropoutShape shape, DropoutStream random, const T* x,
                              const int64_t* row_index, T* out, uint8_t* mask) {
  constexpr int kOwners = kWidth == 1 ? kWarp - 1 : kWarp, kTurns = Turn<kWidth>::kTurns;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = (int64_t{blockIdx.x} * kDropoutThreads + threadIdx.x) / kWarp;
  const int64_t unit = warp * kOwners + lane;
  const bool exists = unit < shape.rows * shape.blocks_per_row, owns = exists && lane < kOwners;
  const int64_t row = exists ? unit / shape.blocks_per_row : 0,
                block = exists ? unit % shape.blocks_per_row : 0;
  const uint64_t first =
      static_cast<uint64_t>(row_index[row]) * static_cast<uint64_t>(shape.columns);
  const int phase = kWidth == 1 ? static_cast<int>(first % kBlockElements) : 0;
  const int64_t column = block * kBlockElements - phase;
  const int64_t place = row * shape.columns + column;
  const uint32_t inside = owns ? ElementsInRow(column, shape.columns) : 0;

  int64_t places[kTurns];
  bool takes[kTurns];
  float values[kTurns][kWidth];
  TANDEM_UNROLL
  for (int t = 0; t < kTurns; ++t) {
    const Turn<kWidth> turn(t);
    places[t] = turn.FromItsLane(place) + turn.element;
    takes[t] = (turn.FromItsLane(inside) >> turn.element & 1) != 0;
    // Always loads, so that the loads are in flight while the numbers are drawn.
    ReadElements<true>(takes[t] ? x + places[t] : x, kWidth, values[t]);
  }

  const uint32_t kept = KeptBits(random, first / kBlockElements + static_cast<uint64_t>(block));
  const uint32_t next = __shfl_down_sync(kAllLanes, kept, 1);
  if (mask != nullptr && owns && block < shape.mask_bytes_per_row) {
    mask[row * shape.mask_bytes_per_row + block] =
        static_cast<uint8_t>((kept | next << kBlockElements) >> phase);
  }
  TANDEM_UNROLL
  for (int t = 0; t < kTurns; ++t) {
    const Turn<kWidth> turn(t);
    const uint32_t bits = turn.FromItsLane(kept) >> turn.element;
    if (!takes[t]) continue;
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e)
      values[t][e] = KeepOrZero((bits >> e & 1) != 0, values[t][e], random.scale);
    WriteElements<true>(out + places[t], kWidth, values[t]);
  }
}

template <class T, int kWidth>
void LaunchDropout(const DropoutArgs& args, const DropoutStream& random, Stream& stream) {
  const int64_t columns = args.x.shape[-1];
  const bool has_mask = !args.mask.empty();
  const DropoutShape shape{args.x.shape.num_rows(), columns, DropoutBlocksPerRow(columns, has_mask),
                           MaskRowBytes(columns)};
  constexpr int kOwners = kWidth == 1 ? kWarp - 1 : kWarp;
  const int64_t warps = CeilDiv(shape.rows * shape.blocks_per_row, kOwners);
  const int64_t blocks = CeilDiv(warps * kWarp, kDropoutThreads);
  Launch(stream, {"dropout", args.output}, Grid{static_cast<unsigned>(blocks), kDropoutThreads},
         DropoutKernel<T, kWidth>, shape, random, args.x.as<T>(), args.row_index.as<int64_t>(),
         args.output.as<T>(),
         has_mask ? reinterpret_cast<uint8_t*>(args.mask.as<uint64_t>()) : nullptr);
}

// 1 where the mask says that the forward pass kept the element, else 0.
struct MaskElements {
  static constexpr int kWidth = kBlockElements;
  const uint8_t* mask;
  int64_t columns, bytes_per_row;

  bool TakesWidth(int width) const { return columns % width == 0; }
  __device__ int64_t PlaceOf(int64_t i) const {
    return i / columns * bytes_per_row * 8 + i % columns;
  }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t, float (&x)[kCount]) const {
    const uint32_t bits = uint32_t{mask[place / 8]} >> (place % 8);
    TANDEM_UNROLL
    for (int e = 0; e < kCount; ++e) x[e] = (bits >> e & 1) != 0 ? 1.0f : 0.0f;
  }
};

struct DropGradient {
  float scale;
  __device__ float operator()(float grad, float kept) const {
    return KeepOrZero(kept != 0, grad, scale);
  }
};

}  // namespace

void Dropout(const DropoutArgs& args, Stream& stream) {
  const DropoutStream random = DropoutStreamOf(args.key, args.step, args.probability, stream);
  WithDeviceType(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool whole_blocks = args.x.shape[-1] % kBlockElements == 0;
    const bool packs =
        whole_blocks && TakesPacks<T>(args.x.data, 0) && TakesPacks<T>(args.output.data, 0);
    if (packs)
      LaunchDropout<T, kPackOf<T>>(args, random, stream);
    else
      LaunchDropout<T, 1>(args, random, stream);
  });
}

void DropoutBackward(const DropoutBackwardArgs& args, Stream& stream) {
  const int64_t columns = args.grad_output.shape[-1];
  const DropGradient drop{static_cast<float>(KeepScale(DropThreshold(args.probability)))};
  const MaskElements kept{reinterpret_cast<const uint8_t*>(args.mask.as<uint64_t>()), columns,
                          MaskRowBytes(columns)};
  WithDeviceType(args.grad_output.dtype, [&](auto zero) {
    using T = decltype(zero);
    Map<T>({"dropout_backward", args.grad_input}, stream, drop,
           Elements<T>{args.grad_output.as<T>()}, kept);
  });
}

}  // namespace tandem::kernels::cuda
