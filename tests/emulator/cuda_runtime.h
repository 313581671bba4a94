// CUDA without a GPU: the language and runtime features that kernels/cuda/*.cu uses, for g++.
// A block's threads are fibers of the calling thread. Barriers and exchanges within a warp switch
// between fibers, so indices, barriers and shared memory behave as on a device.
// The compiler finds this file before the toolkit's header if tests/emulator comes first on the
// include path.
// Finds wrong indices (guards and poison around every array and the shared memory), barriers that
// some threads never reach, and packs that are not aligned (device.cuh).
// Finds missing barriers: the order of threads changes from barrier to barrier, so two runs differ.
// Cannot find errors of memory order, nor errors of tensor cores beyond the rules written here.
// Thread rule: one thread launches at a time.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include "tests/emulator/emulated_queue.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static  // of the one block that runs
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  constexpr dim3(unsigned x, unsigned y = 1, unsigned z = 1)
      : x(x), y(y), z(z) {}  // NOLINT: as CUDA's
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

// The indices of the running fiber.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace tandem::emulator {

[[noreturn]] void Stop(const char* why);
void BlockBarrier();
void WarpBarrier();
// Returns the slots of this warp's next exchange: 64 bytes per lane.
unsigned char* WarpSlots();
unsigned char* DynamicSharedMemory();
// Queues a copy that cp.async asked for. The copy happens when the thread waits.
void QueueCopy(void* to, const void* from, size_t bytes);
void CommitCopies();
// Performs all committed groups of copies but the last `remaining` ones.
void FinishCopies(int remaining);

// The dynamic shared memory that a kernel may have: 48 KiB until the kernel asks for more.
size_t& SharedLimit(const void* kernel);

inline unsigned LinearThread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// Each lane deposits a value and gets the values of all lanes of its warp.
template <class T>
void WarpExchange(const T& mine, T (&all)[32]) {
  static_assert(sizeof(T) <= 64);
  unsigned char* slots = WarpSlots();
  std::memcpy(slots + 64 * (LinearThread() % 32), &mine, sizeof(T));
  WarpBarrier();
  for (int lane = 0; lane < 32; ++lane)
    std::memcpy(static_cast<void*>(&all[lane]), slots + 64 * lane, sizeof(T));
}

void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace tandem::emulator

inline void __syncthreads() { tandem::emulator::BlockBarrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { tandem::emulator::WarpBarrier(); }

template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
  T all[32];
  tandem::emulator::WarpExchange(value, all);
  const int mine = static_cast<int>(tandem::emulator::LinearThread() % 32);
  return all[mine / width * width + lane % width];
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  T all[32];
  tandem::emulator::WarpExchange(value, all);
  return all[(tandem::emulator::LinearThread() % 32) ^ static_cast<unsigned>(mask)];
}
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  T all[32];
  tandem::emulator::WarpExchange(value, all);
  const unsigned lane = tandem::emulator::LinearThread() % 32;
  return lane + delta < 32 ? all[lane + delta] : value;
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  T all[32];
  tandem::emulator::WarpExchange(value, all);
  const unsigned lane = tandem::emulator::LinearThread() % 32;
  return lane >= delta ? all[lane - delta] : value;
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  int all[32];
  tandem::emulator::WarpExchange(predicate, all);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane] != 0) << lane;
  return bits;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
[[noreturn]] inline void __trap() { tandem::emulator::Stop("a kernel trapped"); }

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorInvalidConfiguration"; }
inline const char* cudaGetErrorString(cudaError_t) { return "invalid configuration argument"; }
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  tandem::emulator::SharedLimit(kernel) = static_cast<size_t>(bytes);
  return cudaSuccess;
}

// Enforces the launch limits of sm_80 and later.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (block.x * block.y * block.z > 1024 || block.x * block.y * block.z == 0 ||
      grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
      config->dynamicSmemBytes > (163u << 10)) {
    return cudaErrorInvalidConfiguration;
  }
  if (config->dynamicSmemBytes >
      tandem::emulator::SharedLimit(reinterpret_cast<const void*>(kernel)))
    return cudaErrorInvalidConfiguration;
  // A launch copies its arguments: the kernel may run later, and more than once.
  const std::tuple<std::decay_t<Parameters>...> given(static_cast<Parameters>(arguments)...);
  const auto run = [grid, block, shared_bytes = config->dynamicSmemBytes, kernel, given] {
    tandem::emulator::RunGrid(grid, block, shared_bytes, [&] { std::apply(kernel, given); });
  };
  if (config->stream == nullptr)
    run();
  else
    static_cast<EmulatedQueue*>(config->stream)->Give(run);
  return cudaSuccess;
}
