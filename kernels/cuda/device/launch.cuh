// How the host starts a kernel: on the stream's queue, with errors that name the operation and its shapes.
// Launchers and kernels use only what tests/emulator/cuda_runtime.h has too, so that every .cu file also runs on a CPU.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "kernels/base/array_view.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/storage.h"
#include "kernels/memory/stream.h"
#include "kernels/cuda/device/device_guard.h"

namespace tandem::kernels::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // of dynamic shared memory (SharedMemory)
};

// The operation and its main array: what an error names.
struct Operation {
  const char* name;
  const ArrayView& array;
};

// The stream's error becomes `error`, unless that is cudaSuccess.
void Report(Stream& stream, const Operation& operation, cudaError_t error);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Lets a kernel have so much dynamic shared memory on the device, which is the current one. What it may have only grows: another
// thread may be about to launch it with more.
inline cudaError_t AllowSharedMemory(const void* kernel, int device, size_t num_bytes) {
  static auto* const mutex = new absl::Mutex;
  static auto* const allowed = new std::map<std::pair<const void*, int>, size_t>;
  absl::MutexLock lock(mutex);
  size_t& most = (*allowed)[{kernel, device}];
  if (num_bytes <= most) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(num_bytes));
  if (error == cudaSuccess) most = num_bytes;
  return error;
}

// Runs kernel(arguments...) over the grid. Nothing is done for an empty grid or after the stream failed.
template <class... Parameters, class... Arguments>
void Launch(Stream& stream, const Operation& operation, const Grid& grid, void (*kernel)(Parameters...), Arguments... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0 || !stream.status().ok()) return;
  const tandem::cuda::DeviceGuard guard(stream.device().index);
  constexpr size_t kSharedWithoutAsking = 48 << 10;
  if (grid.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error = AllowSharedMemory(reinterpret_cast<const void*>(kernel), stream.device().index, grid.shared_bytes);
    if (error != cudaSuccess) return Report(stream, operation, error);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.queue());
  Report(stream, operation, cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

// Memory that kernels of this stream use until the returned owner goes: then the stream's next kernels may have it.
inline std::shared_ptr<Buffer> DeviceScratch(Stream& stream, size_t num_bytes) { return Buffer::Allocate(num_bytes, stream.device()); }

// Calls body(T{}) with the storage type of a view: float or BFloat16. The reference type, f64, stays on the CPU.
template <class Body>
void WithDeviceType(DType dtype, const Body& body) {
  if (dtype == DType::F32) return body(float{});
  TANDEM_CHECK(dtype == DType::BF16) << "no CUDA kernel for elements of type " << NameOf(dtype);
  body(BFloat16{});
}

}  // namespace tandem::kernels::cuda
