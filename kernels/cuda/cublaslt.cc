#include "kernels/cuda/cublaslt.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/dynamic_library.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_guard.h"

namespace tandem::kernels::cuda {

namespace {

// The arithmetic of all products: f32 sums and unrounded f32 operands. TF32 would be
// CUBLAS_COMPUTE_32F_FAST_TF32 here.
constexpr cublasComputeType_t kComputeType = CUBLAS_COMPUTE_32F;
constexpr cudaDataType_t kScaleType = CUDA_R_32F;
// Keeps parts of a sum in f32 and adds them in a separate step: neither in place in the result nor
// rounded to its type.
constexpr uint32_t kReductions =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr uint64_t kWorkspaceBytes = 32 << 20;  // enough for Hopper's algorithms
// Limits the cache, because numbers of tokens differ from step to step. A choice made again is the
// same.
constexpr size_t kMaxAlgorithms = 1 << 14;

cudaDataType_t TypeOf(DType dtype) {
  TANDEM_CHECK(dtype == DType::F32 || dtype == DType::BF16)
      << "no product of " << NameOf(dtype) << " on a CUDA device";
  return dtype == DType::F32 ? CUDA_R_32F : CUDA_R_16BF;
}

absl::Status StatusOf(const CublasLtCalls& calls, const char* function, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const absl::StatusCode code =
      status == CUBLAS_STATUS_ALLOC_FAILED    ? absl::StatusCode::kResourceExhausted
      : status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::StatusCode::kUnimplemented
                                              : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(function, ": ", calls.get_status_name(status)));
}

// Bias and GELU argument have the result's type, the library's default.
cublasLtEpilogue_t EpilogueOf(const GemmPlan& plan) {
  if (plan.before_gelu == nullptr)
    return plan.bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
  return plan.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

// An object that one function of the library made and another destroys.
template <class T>
using Owned = std::unique_ptr<T, cublasStatus_t (*)(T*)>;

}  // namespace

absl::StatusOr<CublasLtCalls> LoadCublasLt() {
  const std::string name = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
  ASSIGN_OR_RETURN(
      const DynamicLibrary library,
      DynamicLibrary::Load({name, absl::StrCat("/usr/local/cuda/lib64/", name), "libcublasLt.so"}));
  CublasLtCalls calls;
  RETURN_IF_ERROR(library.Find("cublasLtGetVersion", calls.get_version));
  RETURN_IF_ERROR(library.Find("cublasLtGetStatusName", calls.get_status_name));
  RETURN_IF_ERROR(library.Find("cublasLtCreate", calls.create));
  RETURN_IF_ERROR(library.Find("cublasLtMatmul", calls.matmul));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoGetHeuristic", calls.get_heuristic));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", calls.create_operation));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescSetAttribute", calls.set_operation));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", calls.destroy_operation));
  RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", calls.create_layout));
  RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", calls.destroy_layout));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceCreate", calls.create_preference));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceSetAttribute", calls.set_preference));
  RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceDestroy", calls.destroy_preference));
  // The header's attribute numbers and descriptor sizes hold for its major version only.
  const size_t version = calls.get_version();
  if (version / 10000 != CUBLAS_VER_MAJOR) {
    return absl::NotFoundError(absl::StrCat(library.name(), " is of version ", version,
                                            "; this binary was built for ", CUBLAS_VERSION));
  }
  return calls;
}

ProductKind::ProductKind(const GemmPlan& plan)
    : rows(plan.result.rows),
      columns(plan.result.columns),
      depth(plan.depth),
      first_leading(plan.first.leading),
      second_leading(plan.second.leading),
      result_leading(plan.result.leading),
      first_alignment(AlignmentOf(plan.first.data)),
      second_alignment(AlignmentOf(plan.second.data)),
      result_alignment(AlignmentOf(plan.result.data)),
      operand(plan.first.dtype),
      result(plan.result.dtype),
      transpose_first(plan.transpose_first),
      transpose_second(plan.transpose_second),
      bias(plan.bias != nullptr),
      gelu(plan.before_gelu != nullptr) {}

// The library's description of a product. Made for each call: a few small allocations, small next
// to a launch.
class CublasLt::Descriptors {
 public:
  static absl::StatusOr<Descriptors> Of(const CublasLtCalls& calls, const GemmPlan& plan) {
    Descriptors made(calls);
    cublasLtMatmulDesc_t operation = nullptr;
    RETURN_IF_ERROR(StatusOf(calls, "cublasLtMatmulDescCreate",
                             calls.create_operation(&operation, kComputeType, kScaleType)));
    made.operation_.reset(operation);
    RETURN_IF_ERROR(
        made.Set(CUBLASLT_MATMUL_DESC_TRANSA,
                 static_cast<int32_t>(plan.transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N)));
    RETURN_IF_ERROR(
        made.Set(CUBLASLT_MATMUL_DESC_TRANSB,
                 static_cast<int32_t>(plan.transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N)));
    RETURN_IF_ERROR(
        made.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(EpilogueOf(plan))));
    if (plan.before_gelu != nullptr)
      RETURN_IF_ERROR(made.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, plan.result.leading));
    // The choice of an algorithm looks only at the alignment of these addresses. Pass one aligned
    // address for all, so that all look alike.
    void* const aligned = reinterpret_cast<void*>(uintptr_t{16});
    RETURN_IF_ERROR(made.SetPlaces(plan.bias == nullptr ? nullptr : aligned,
                                   plan.before_gelu == nullptr ? nullptr : aligned));
    RETURN_IF_ERROR(made.Describe(plan.first, made.first_));
    RETURN_IF_ERROR(made.Describe(plan.second, made.second_));
    RETURN_IF_ERROR(made.Describe(plan.result, made.result_));
    return made;
  }

  // Sets the addresses of the bias and of GELU's arguments.
  // REQUIRES: null exactly if null in the plan.
  absl::Status SetPlaces(const void* bias, void* before_gelu) {
    if (bias != nullptr) RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    return before_gelu == nullptr ? absl::OkStatus()
                                  : Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before_gelu);
  }

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t first() const { return first_.get(); }
  cublasLtMatrixLayout_t second() const { return second_.get(); }
  cublasLtMatrixLayout_t result() const { return result_.get(); }

 private:
  using Layout = Owned<cublasLtMatrixLayoutOpaque_t>;

  explicit Descriptors(const CublasLtCalls& calls)
      : calls_(&calls),
        operation_(nullptr, calls.destroy_operation),
        first_(nullptr, calls.destroy_layout),
        second_(nullptr, calls.destroy_layout),
        result_(nullptr, calls.destroy_layout) {}

  // T is the attribute's type in cublasLt.h; the library checks its size.
  template <class T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return StatusOf(*calls_, "cublasLtMatmulDescSetAttribute",
                    calls_->set_operation(operation_.get(), attribute, &value, sizeof(value)));
  }

  absl::Status Describe(const ColumnMajor& matrix, Layout& layout) {
    cublasLtMatrixLayout_t made = nullptr;
    RETURN_IF_ERROR(StatusOf(
        *calls_, "cublasLtMatrixLayoutCreate",
        calls_->create_layout(&made, TypeOf(matrix.dtype), static_cast<uint64_t>(matrix.rows),
                              static_cast<uint64_t>(matrix.columns), matrix.leading)));
    layout.reset(made);
    return absl::OkStatus();
  }

  const CublasLtCalls* calls_;
  Owned<cublasLtMatmulDescOpaque_t> operation_;
  Layout first_, second_, result_;
};

absl::StatusOr<CublasLt*> CublasLt::Of(int device) {
  static auto* const instances = new std::map<int, std::unique_ptr<CublasLt>>;
  static absl::Mutex* const mutex = new absl::Mutex;
  absl::MutexLock lock(mutex);
  std::unique_ptr<CublasLt>& instance = (*instances)[device];
  if (instance == nullptr) {
    ASSIGN_OR_RETURN(const CublasLtCalls calls, LoadCublasLt());
    const tandem::cuda::DeviceGuard guard(device);  // a handle belongs to the current device
    RETURN_IF_ERROR(tandem::cuda::CudaStatus(guard.error(), "choosing CUDA device ", device));
    cublasLtHandle_t handle = nullptr;
    RETURN_IF_ERROR(StatusOf(calls, "cublasLtCreate", calls.create(&handle)));
    instance.reset(new CublasLt(device, calls, handle));
  }
  return instance.get();
}

absl::Status CublasLt::Multiply(const GemmPlan& plan, void* queue) {
  const tandem::cuda::DeviceGuard guard(device_);
  RETURN_IF_ERROR(tandem::cuda::CudaStatus(guard.error(), "choosing CUDA device ", device_));
  ASSIGN_OR_RETURN(Descriptors descriptors, Descriptors::Of(calls_, plan));
  ASSIGN_OR_RETURN(const Algorithm chosen, AlgorithmFor(ProductKind(plan), descriptors));
  RETURN_IF_ERROR(descriptors.SetPlaces(plan.bias, plan.before_gelu));
  void* workspace = nullptr;
  if (chosen.workspace_bytes > 0) {
    ASSIGN_OR_RETURN(workspace, WorkspaceOf(queue));
  }
  const float alpha = 1, beta = plan.accumulate ? 1 : 0;
  return StatusOf(
      calls_, "cublasLtMatmul",
      calls_.matmul(handle_, descriptors.operation(), &alpha, plan.first.data, descriptors.first(),
                    plan.second.data, descriptors.second(), &beta, plan.result.data,
                    descriptors.result(), plan.result.data, descriptors.result(), &chosen.algorithm,
                    workspace, chosen.workspace_bytes, static_cast<cudaStream_t>(queue)));
}

absl::StatusOr<CublasLt::Algorithm> CublasLt::AlgorithmFor(const ProductKind& kind,
                                                           const Descriptors& descriptors) {
  absl::MutexLock lock(&mutex_);
  const auto known = algorithms_.find(kind);
  if (known != algorithms_.end()) return known->second;
  const absl::StatusOr<Algorithm> chosen = Choose(kind, descriptors);
  if (!chosen.ok() && !absl::IsUnimplemented(chosen.status())) return chosen;
  if (algorithms_.size() >= kMaxAlgorithms) algorithms_.clear();
  algorithms_.emplace(kind, chosen);
  return chosen;
}

absl::StatusOr<CublasLt::Algorithm> CublasLt::Choose(const ProductKind& kind,
                                                     const Descriptors& descriptors) const {
  cublasLtMatmulPreference_t made = nullptr;
  RETURN_IF_ERROR(
      StatusOf(calls_, "cublasLtMatmulPreferenceCreate", calls_.create_preference(&made)));
  const Owned<cublasLtMatmulPreferenceOpaque_t> preference(made, calls_.destroy_preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return StatusOf(calls_, "cublasLtMatmulPreferenceSetAttribute",
                    calls_.set_preference(preference.get(), attribute, &value, sizeof(value)));
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions));
  RETURN_IF_ERROR(
      set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(kind.first_alignment)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                      static_cast<uint32_t>(kind.second_alignment)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                      static_cast<uint32_t>(kind.result_alignment)));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                      static_cast<uint32_t>(kind.result_alignment)));

  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  RETURN_IF_ERROR(
      StatusOf(calls_, "cublasLtMatmulAlgoGetHeuristic",
               calls_.get_heuristic(handle_, descriptors.operation(), descriptors.first(),
                                    descriptors.second(), descriptors.result(),
                                    descriptors.result(), preference.get(), 1, &best, &count)));
  if (count == 0) return absl::UnimplementedError("cuBLASLt has no algorithm for this product");
  RETURN_IF_ERROR(StatusOf(calls_, "cublasLtMatmulAlgoGetHeuristic", best.state));
  return Algorithm{best.algo, best.workspaceSize};
}

absl::StatusOr<void*> CublasLt::WorkspaceOf(void* queue) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Buffer>& workspace = workspaces_[queue];
  if (workspace == nullptr) {
    std::shared_ptr<Buffer> memory = Buffer::Allocate(kWorkspaceBytes, {DeviceKind::CUDA, device_});
    if (memory->missing())
      return absl::ResourceExhaustedError("the device has no memory for cuBLASLt's workspace");
    // Kernels of another queue may still use memory that its owner has returned (block_cache.h).
    RETURN_IF_ERROR(
        tandem::cuda::CudaStatus(cudaDeviceSynchronize(), "earlier work on CUDA device ", device_));
    workspace = std::move(memory);
  }
  return workspace->data();
}

}  // namespace tandem::kernels::cuda
