#include <algorithm>
#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/elements.cuh"

namespace tandem::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // each then takes several rounds

// kCount neighbours, read and written at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Neighbours {
  T element[kCount];
};

template <class T, int kCount>
__global__ void AddToKernel(Neighbours<T, kCount>* sum, const Neighbours<T, kCount>* x, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Neighbours<T, kCount> total = sum[i];
    const Neighbours<T, kCount> other = x[i];
    TANDEM_UNROLL
    for (int e = 0; e < kCount; ++e) total.element[e] = static_cast<T>(total.element[e] + other.element[e]);
    sum[i] = total;
  }
}

// What one call adds up, and where.
struct Sum {
  void* to;
  const void* from;
  int64_t count;
  int device;
  cudaStream_t queue;
};

// From element `begin` on as many elements as whole packs of kCount take, if they lie where packs may; how many those are.
template <class T, int kCount>
absl::StatusOr<int64_t> AddPacks(const Sum& sum, int64_t begin) {
  using Pack = Neighbours<T, kCount>;
  T* const to = static_cast<T*>(sum.to) + begin;
  const T* const from = static_cast<const T*>(sum.from) + begin;
  const auto takes = [](const T* data) { return reinterpret_cast<uintptr_t>(data) % sizeof(Pack) == 0; };
  const int64_t packs = takes(to) && takes(from) ? (sum.count - begin) / kCount : 0;
  if (packs == 0) return 0;
  const DeviceGuard guard(sum.device);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(kMaxBlocks, (packs + kThreads - 1) / kThreads)));
  config.blockDim = dim3(kThreads);
  config.stream = sum.queue;
  const cudaError_t error =
      cudaLaunchKernelEx(&config, AddToKernel<T, kCount>, reinterpret_cast<Pack*>(to), reinterpret_cast<const Pack*>(from), packs);
  RETURN_IF_ERROR(CudaStatus(error, "adding up ", sum.count, " elements"));
  return packs * kCount;
}

template <class T>
absl::Status AddAll(const Sum& sum) {
  ASSIGN_OR_RETURN(const int64_t done, (AddPacks<T, 16 / sizeof(T)>(sum, 0)));
  ASSIGN_OR_RETURN(const int64_t rest, (AddPacks<T, 1>(sum, done)));
  TANDEM_CHECK_EQ(done + rest, sum.count) << "elements that lie between others";
  return absl::OkStatus();
}

}  // namespace

absl::Status AddTo(DType dtype, void* sum, const void* x, int64_t count, int device, void* queue) {
  const Sum all{sum, x, count, device, static_cast<cudaStream_t>(queue)};
  switch (dtype) {
    case DType::F32: return AddAll<float>(all);
    case DType::F64: return AddAll<double>(all);
    // Summed unsigned, the same bits: overflow wraps and is defined.
    case DType::I64:
    case DType::U64: return AddAll<uint64_t>(all);
    case DType::U8: return AddAll<uint8_t>(all);
    case DType::BF16: break;
  }
  TANDEM_CHECK(false) << "no sum of " << NameOf(dtype);
  return absl::OkStatus();
}

}  // namespace tandem::cuda
