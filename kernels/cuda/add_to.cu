#include <algorithm>
#include <cstdint>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace tandem::kernels::cuda {

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

// The first elements, as many as whole packs of kCount take; how many those are.
template <class T, int kCount>
int64_t AddPacks(const ArrayView& sum, const void* x, int64_t begin, Stream& stream) {
  using Pack = Neighbours<T, kCount>;
  T* const to = static_cast<T*>(sum.data) + begin;
  const T* const from = static_cast<const T*>(x) + begin;
  const auto takes = [](const T* data) { return reinterpret_cast<uintptr_t>(data) % sizeof(Pack) == 0; };
  if (!takes(to) || !takes(from)) return 0;
  const int64_t packs = (sum.num_elements() - begin) / kCount;
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, CeilDiv(packs, kThreads)));
  Launch(stream, {"add_to", sum}, Grid{blocks, kThreads}, AddToKernel<T, kCount>, reinterpret_cast<Pack*>(to),
         reinterpret_cast<const Pack*>(from), packs);
  return packs * kCount;
}

template <class T>
void AddAll(const ArrayView& sum, const void* x, Stream& stream) {
  const int64_t done = AddPacks<T, 16 / sizeof(T)>(sum, x, 0, stream);
  AddPacks<T, 1>(sum, x, done, stream);
}

}  // namespace

void AddTo(const ArrayView& sum, const ArrayView& x, Stream& stream) {
  TANDEM_CHECK(sum.dtype == x.dtype && sum.num_elements() == x.num_elements() && sum.is_dense() && x.is_dense())
      << sum.shape << " and " << x.shape;
  switch (sum.dtype) {
    case DType::F32: return AddAll<float>(sum, x.data, stream);
    case DType::F64: return AddAll<double>(sum, x.data, stream);
    // Summed unsigned, the same bits: overflow wraps and is defined.
    case DType::I64:
    case DType::U64: return AddAll<uint64_t>(sum, x.data, stream);
    case DType::U8: return AddAll<uint8_t>(sum, x.data, stream);
    case DType::BF16: break;
  }
  TANDEM_CHECK(false) << "no sum of " << NameOf(sum.dtype);
}

}  // namespace tandem::kernels::cuda
