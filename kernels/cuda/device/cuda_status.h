// Converts errors of CUDA's runtime to absl::Status.
// Thread rule: each call is about the calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::cuda {

// OK for cudaSuccess. Otherwise an error that names the failed call; `what` are parts for
// absl::StrCat. Clears an error that is not sticky, so that no later call reports it again.
template <class... Parts>
absl::Status CudaStatus(cudaError_t error, const Parts&... what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const absl::StatusCode code = error == cudaErrorMemoryAllocation
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kInternal;
  return absl::Status(
      code, absl::StrCat(what..., ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

}  // namespace tandem::cuda
