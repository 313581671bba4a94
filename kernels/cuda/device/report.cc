#include <sstream>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/launch.cuh"

namespace tandem::kernels::cuda {

void Report(Stream& stream, const Operation& operation, cudaError_t error) {
  if (error == cudaSuccess) return;
  std::ostringstream what;
  what << operation.name << " of " << NameOf(operation.array.dtype) << " " << operation.array.shape;
  stream.Fail(tandem::cuda::CudaStatus(error, what.str()));
}

}  // namespace tandem::kernels::cuda
