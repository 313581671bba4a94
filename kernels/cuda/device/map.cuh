// The frame of elementwise operations: out[i] = f(inputs[i]...), computed in f32 and stored once.
// An input is a small struct that reads a few neighbouring elements: an array, one row for every
// row, or one number per row. PlaceOf gives the place of element i. All places are computed before
// the first read: a division has branches, and each branch would wait for the reads before it. A
// thread reads all its elements before it writes one, so an input may be the output.
// Thread rule: the stream's thread.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace tandem::kernels::cuda {

// An array with the output's shape.
template <class T>
struct Elements {
  static constexpr int kWidth = kPackOf<T>;  // the most elements for one thread to read at once
  const T* data;

  bool TakesWidth(int) const { return TakesPacks<T>(data, 0); }
  __device__ int64_t PlaceOf(int64_t i) const { return i; }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t left, float (&x)[kCount]) const {
    ReadElements<kPacks>(data + place, left, x);
  }
};

// One number per column: the same row for every row.
template <class T>
struct PerColumn {
  static constexpr int kWidth = 8;
  const T* data;
  int64_t columns;

  bool TakesWidth(int width) const { return TakesPacks<T>(data, columns) && columns % width == 0; }
  __device__ int64_t PlaceOf(int64_t i) const { return i % columns; }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t left, float (&x)[kCount]) const {
    ReadElements<kPacks>(data + place, left, x);
  }
};

// One number per row.
template <class T>
struct PerRow {
  static constexpr int kWidth = 8;
  const T* data;
  int64_t columns;

  bool TakesWidth(int width) const { return columns % width == 0; }
  __device__ int64_t PlaceOf(int64_t i) const { return i / columns; }
  template <bool kPacks, int kCount>
  __device__ void Read(int64_t place, int64_t, float (&x)[kCount]) const {
    const float value = Load(data[place]);
    TANDEM_UNROLL
    for (int e = 0; e < kCount; ++e) x[e] = value;
  }
};

inline constexpr int kMapThreads = 256;
// Packs per thread: enough bytes in flight for full bandwidth, and few enough blocks for 2^40
// single elements.
constexpr int MapPacks(int width) { return width > 1 ? 2 : 8; }

template <class F, int kInputs, int kWidth, size_t... kInput>
__device__ inline auto ApplyAt([[maybe_unused]] int e, const F& f,
                               [[maybe_unused]] const float (&x)[kInputs][kWidth],
                               std::index_sequence<kInput...>) {
  return f(x[kInput][e]...);
}

// Computes the packs that begin at first, first + kMapThreads * kWidth, ... With kPacks, all packs
// end before `count`.
template <bool kPacks, int kWidth, class O, class F, class... Inputs>
__device__ inline void MapElements(int64_t first, int64_t count, O* out, const F& f,
                                   const Inputs&... inputs) {
  constexpr int kParts = MapPacks(kWidth), kInputs = sizeof...(Inputs);
  [[maybe_unused]] int64_t places[kParts][std::max(kInputs, 1)];
  [[maybe_unused]] float x[kParts][std::max(kInputs, 1)][kWidth];
  TANDEM_UNROLL
  for (int p = 0; p < kParts; ++p) {
    [[maybe_unused]] const int64_t i = first + p * kMapThreads * kWidth;
    [[maybe_unused]] int input = 0;
    ((places[p][input++] = inputs.PlaceOf(i)), ...);
  }
  TANDEM_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const int64_t i = first + p * kMapThreads * kWidth;
    if (!kPacks && i >= count) break;
    [[maybe_unused]] int input = 0;
    ((inputs.template Read<kPacks>(places[p][input], count - i, x[p][input]), ++input), ...);
  }
  TANDEM_UNROLL
  for (int p = 0; p < kParts; ++p) {
    const int64_t i = first + p * kMapThreads * kWidth;
    if (!kPacks && i >= count) return;
    Compute<O> value[kWidth];
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e)
      value[e] = ApplyAt(e, f, x[p], std::make_index_sequence<kInputs>());
    WriteElements<kPacks>(out + i, count - i, value);
  }
}

template <int kWidth, class O, class F, class... Inputs>
__global__ void MapKernel(int64_t count, O* out, F f, Inputs... inputs) {
  constexpr int kParts = MapPacks(kWidth);
  const int64_t first = (int64_t{blockIdx.x} * kParts * kMapThreads + threadIdx.x) * kWidth;
  if (first + ((kParts - 1) * kMapThreads + 1) * kWidth <= count)
    MapElements<true, kWidth>(first, count, out, f, inputs...);
  else
    MapElements<false, kWidth>(first, count, out, f, inputs...);
}

template <int kWidth, class O, class F, class... Inputs>
void LaunchMap(const Operation& operation, Stream& stream, const F& f, const Inputs&... inputs) {
  const int64_t count = operation.array.num_elements();
  const int64_t blocks = CeilDiv(count, int64_t{kMapThreads} * MapPacks(kWidth) * kWidth);
  Launch(stream, operation, Grid{static_cast<unsigned>(blocks), kMapThreads},
         MapKernel<kWidth, O, F, Inputs...>, count, operation.array.as<O>(), f, inputs...);
}

// operation.array[i] = f(inputs[i]...), with elements of type O.
template <class O, class F, class... Inputs>
void Map(const Operation& operation, Stream& stream, const F& f, const Inputs&... inputs) {
  constexpr int kWidth = std::min({kPackOf<O>, Inputs::kWidth...});
  if (TakesPacks<O>(operation.array.data, 0) && (inputs.TakesWidth(kWidth) && ...)) {
    LaunchMap<kWidth, O>(operation, stream, f, inputs...);
  } else {
    LaunchMap<1, O>(operation, stream, f, inputs...);
  }
}

}  // namespace tandem::kernels::cuda
