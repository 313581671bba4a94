// Errors of CUDA's runtime as absl::Status.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::cuda {

// OK for cudaSuccess; otherwise names what was done, in parts as absl::StrCat takes them. An error that does not stay by itself
// is taken off the thread, so that no later call reports it again.
template <class... Parts>
absl::Status CudaStatus(cudaError_t error, const Parts&... what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const absl::StatusCode code =
      error == cudaErrorMemoryAllocation ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(what..., ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

}  // namespace tandem::cuda
