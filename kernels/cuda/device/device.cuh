// The building blocks of kernels: 16-byte packs of elements, sums over a warp or a block in a fixed
// order, shared memory, checks.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/memory/storage.h"

namespace tandem::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// kCount neighbouring elements, read and written by one instruction of at most 16 bytes.
// REQUIRES: aligned to its size.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];

  __device__ static Pack At(const T* from) {
    CheckAlignment(from);
    return *reinterpret_cast<const Pack*>(from);
  }
  __device__ void Put(T* to) const {
    if constexpr (sizeof(T) == 2 && kCount % 2 == 0) {
      // Stores 32-bit words, because nvcc makes one store per two-byte element.
      Pack<uint32_t, kCount / 2> words;
      for (int i = 0; i < kCount / 2; ++i)
        words.values[i] = values[2 * i].bits | static_cast<uint32_t>(values[2 * i + 1].bits) << 16;
      words.Put(reinterpret_cast<uint32_t*>(to));
    } else {
      CheckAlignment(to);
      *reinterpret_cast<Pack*>(to) = *this;
    }
  }

 private:
  // A device checks alignment itself.
  __device__ static void CheckAlignment([[maybe_unused]] const T* place) {
#ifndef __CUDACC__
    if (reinterpret_cast<uintptr_t>(place) % sizeof(Pack) != 0)
      emulator::Stop("a pack is not aligned");
#endif
  }
};
// The number of elements in 16 bytes.
template <class T>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(T));

// True if packs of kPackOf<T> may be read at `data` and at every multiple of `stride` elements
// after it.
template <class T>
inline bool TakesPacks(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kPackOf<T> == 0;
}

// The block's dynamic shared memory.
template <class T>
__device__ inline T* SharedMemory() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) unsigned char tandem_shared_memory[];
#else
  unsigned char* tandem_shared_memory = emulator::DynamicSharedMemory();
#endif
  return reinterpret_cast<T*>(tandem_shared_memory);
}

// Traps if `condition` is false; the stream then reports an error.
__device__ inline void DeviceCheck(bool condition) {
  if (!condition) __trap();
}

// Returns to every lane the sum (the maximum) over all lanes, by a tree of fixed shape.
template <class T>
__device__ inline T WarpSum(T value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}
template <class T>
__device__ inline T WarpMax(T value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

// Returns to every thread the sum (the maximum) over the block: first per warp, then over warps in
// order. `room` is shared memory with one value per warp, free again when the call returns.
// REQUIRES: all threads of a one-dimensional block call; the block has whole warps.
template <class T>
__device__ inline T BlockSum(T value, T* room) {
  value = WarpSum(value);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = value;
  __syncthreads();
  T sum = room[0];
  for (int w = 1; w < warps; ++w) sum += room[w];
  __syncthreads();
  return sum;
}
template <class T>
__device__ inline T BlockMax(T value, T* room) {
  value = WarpMax(value);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = value;
  __syncthreads();
  T max = room[0];
  for (int w = 1; w < warps; ++w) max = room[w] > max ? room[w] : max;
  __syncthreads();
  return max;
}

}  // namespace tandem::kernels::cuda
