// Starts kernels from the host: on the stream's queue, with errors that name the operation and its
// shapes. Launchers and kernels use only features that tests/emulator/cuda_runtime.h also has, so
// every .cu file also runs on a CPU.
// Thread rule: the stream's thread.
#pragma once

#include <cuda_runtime.h>
#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "kernels/base/array_view.h"
#include "kernels/cuda/device/device_guard.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/storage.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic shared memory (SharedMemory)
};

// The name of the operation and its main array, for errors.
struct Operation {
  const char* name;
  const ArrayView& array;
};

// Fails the stream with `error`, unless it is cudaSuccess.
void Report(Stream& stream, const Operation& operation, cudaError_t error);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Raises the kernel's limit of dynamic shared memory to `num_bytes`, on the current device. Never
// lowers the limit, because another thread may be about to launch the kernel with more.
inline cudaError_t AllowSharedMemory(const void* kernel, int device, size_t num_bytes) {
  static auto* const mutex = new absl::Mutex;
  static auto* const allowed = new std::map<std::pair<const void*, int>, size_t>;
  absl::MutexLock lock(mutex);
  size_t& most = (*allowed)[{kernel, device}];
  if (num_bytes <= most) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(num_bytes));
  if (error == cudaSuccess) most = num_bytes;
  return error;
}

// Runs kernel(arguments...) over the grid. Does nothing for an empty grid or after the stream has
// failed.
template <class... Parameters, class... Arguments>
void Launch(Stream& stream, const Operation& operation, const Grid& grid,
            void (*kernel)(Parameters...), Arguments... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0 || !stream.status().ok())
    return;
  const tandem::cuda::DeviceGuard guard(stream.device().index);
  constexpr size_t kSharedWithoutAsking = 48 << 10;
  if (grid.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error = AllowSharedMemory(reinterpret_cast<const void*>(kernel),
                                                stream.device().index, grid.shared_bytes);
    if (error != cudaSuccess) return Report(stream, operation, error);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.queue());
  Report(stream, operation,
         cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

// Memory for kernels of this stream, until the returned owner is gone. Then later kernels of the
// stream may get it.
inline std::shared_ptr<Buffer> DeviceScratch(Stream& stream, size_t num_bytes) {
  return Buffer::Allocate(num_bytes, stream.device());
}

// Calls body(T{}) with the storage type of a view: float or BFloat16. The reference type f64 runs
// on the CPU only.
template <class Body>
void WithDeviceType(DType dtype, const Body& body) {
  if (dtype == DType::F32) return body(float{});
  TANDEM_CHECK(dtype == DType::BF16) << "no CUDA kernel for elements of type " << NameOf(dtype);
  body(BFloat16{});
}

}  // namespace tandem::kernels::cuda
