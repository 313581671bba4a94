#include "kernels/cuda/device/map.cuh"
#include "kernels/cuda/kernels.h"

namespace tandem::kernels::cuda {

namespace {

struct Same {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

void Cast(const ArrayView& output, const ArrayView& input, Stream& stream) {
  if (output.dtype == input.dtype) return Copy(output, input, stream);
  if (output.dtype == DType::BF16)
    return Map<BFloat16>({"cast", output}, stream, Same{}, Elements<float>{input.as<float>()});
  Map<float>({"cast", output}, stream, Same{}, Elements<BFloat16>{input.as<BFloat16>()});
}

}  // namespace tandem::kernels::cuda
