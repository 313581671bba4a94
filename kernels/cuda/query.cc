#include <cuda_runtime_api.h>

#include "kernels/base/device.h"

namespace tandem {

CudaInfo QueryCuda() {
  CudaInfo info;
  info.built_in = true;
  if (cudaRuntimeGetVersion(&info.runtime_version) != cudaSuccess) info.runtime_version = 0;
  if (cudaGetDeviceCount(&info.num_devices) != cudaSuccess) info.num_devices = 0;
  return info;
}

}  // namespace tandem
