// cuBLASLt on one device. The library is loaded at the first product. Each product's algorithm is
// chosen once, by shapes and types alone, so equal products have equal bits. Excludes algorithms
// that sum in no fixed order, round to bf16 on the way, or use TF32.
// Thread rule: any thread; one thread at a time per queue.
#pragma once

#include <cstddef>
#include <cublasLt.h>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/plan/gemm_plan.h"
#include "kernels/memory/buffer.h"

namespace tandem::kernels::cuda {

// The functions of the library that this file calls.
struct CublasLtCalls {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusName) get_status_name;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
};
// NotFound if the library is not installed or has another major version.
absl::StatusOr<CublasLtCalls> LoadCublasLt();

// Everything that the choice of an algorithm depends on.
struct ProductKind {
  int64_t rows, columns, depth;
  int64_t first_leading, second_leading, result_leading;
  int first_alignment, second_alignment, result_alignment;
  DType operand, result;
  bool transpose_first, transpose_second, bias, gelu;

  explicit ProductKind(const GemmPlan& plan);
  bool operator==(const ProductKind&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const ProductKind& p) {
    return H::combine(std::move(h), p.rows, p.columns, p.depth, p.first_leading, p.second_leading,
                      p.result_leading, p.first_alignment, p.second_alignment, p.result_alignment,
                      p.operand, p.result, p.transpose_first, p.transpose_second, p.bias, p.gelu);
  }
};

class CublasLt {
 public:
  // The instance of the device, made by the first call. Never destroyed, because at the process's
  // end the driver is gone before statics are.
  static absl::StatusOr<CublasLt*> Of(int device);

  // Submits the product. Unimplemented: no algorithm exists for it, now or later.
  // REQUIRES: no dim is 0.
  absl::Status Multiply(const GemmPlan& plan, void* queue);

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
  };
  class Descriptors;

  CublasLt(int device, const CublasLtCalls& calls, cublasLtHandle_t handle)
      : device_(device), calls_(calls), handle_(handle) {}
  absl::StatusOr<Algorithm> AlgorithmFor(const ProductKind& kind, const Descriptors& descriptors);
  absl::StatusOr<Algorithm> Choose(const ProductKind& kind, const Descriptors& descriptors) const;
  absl::StatusOr<void*> WorkspaceOf(void* queue);

  const int device_;
  const CublasLtCalls calls_;
  const cublasLtHandle_t handle_;
  absl::Mutex mutex_;
  absl::flat_hash_map<ProductKind, absl::StatusOr<Algorithm>> algorithms_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::shared_ptr<Buffer>> workspaces_ ABSL_GUARDED_BY(mutex_);  // by queue
};

}  // namespace tandem::kernels::cuda
