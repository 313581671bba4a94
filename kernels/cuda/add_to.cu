#include <algorithm>
#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_guard.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // with more packs, blocks take several rounds

// Adds `count` packs of kCount elements.
template <class T, int kCount>
__global__ void AddToKernel(T* sum, const T* x, int64_t count) {
  using kernels::cuda::Pack;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    auto total = Pack<T, kCount>::At(sum + i * kCount);
    const auto other = Pack<T, kCount>::At(x + i * kCount);
    TANDEM_UNROLL
    for (int e = 0; e < kCount; ++e)
      total.values[e] = static_cast<T>(total.values[e] + other.values[e]);
    total.Put(sum + i * kCount);
  }
}

// The operands of one call.
struct Sum {
  void* to;
  const void* from;
  int64_t count;
  int device;
  cudaStream_t queue;
};

template <class T, int kCount>
absl::Status AddPacks(const Sum& sum, int64_t begin, int64_t packs) {
  if (packs == 0) return absl::OkStatus();
  const DeviceGuard guard(sum.device);
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(kMaxBlocks, (packs + kThreads - 1) / kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = sum.queue;
  const cudaError_t error =
      cudaLaunchKernelEx(&config, AddToKernel<T, kCount>, static_cast<T*>(sum.to) + begin,
                         static_cast<const T*>(sum.from) + begin, packs);
  return CudaStatus(error, "adding up ", sum.count, " elements");
}

template <class T>
absl::Status AddAll(const Sum& sum) {
  constexpr int kWidth = kernels::cuda::kPackOf<T>;
  const bool takes_packs =
      kernels::cuda::TakesPacks<T>(sum.to, 0) && kernels::cuda::TakesPacks<T>(sum.from, 0);
  const int64_t packs = takes_packs ? sum.count / kWidth : 0;
  RETURN_IF_ERROR((AddPacks<T, kWidth>(sum, 0, packs)));
  return AddPacks<T, 1>(sum, packs * kWidth, sum.count - packs * kWidth);
}

}  // namespace

absl::Status AddTo(DType dtype, void* sum, const void* x, int64_t count, int device, void* queue) {
  const Sum all{sum, x, count, device, static_cast<cudaStream_t>(queue)};
  switch (dtype) {
    case DType::F32:
      return AddAll<float>(all);
    case DType::F64:
      return AddAll<double>(all);
    // Sums unsigned: the bits are the same, and overflow is defined to wrap.
    case DType::I64:
    case DType::U64:
      return AddAll<uint64_t>(all);
    case DType::U8:
      return AddAll<uint8_t>(all);
    case DType::BF16:
      break;
  }
  TANDEM_CHECK(false) << "no sum of " << NameOf(dtype);
  return absl::OkStatus();
}

}  // namespace tandem::cuda
