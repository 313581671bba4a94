// A stand-in for libcublasLt that multiplies in host memory, one element at a time. It shares
// cublasLt.h with the library.
// The stand-in is as strict as the documentation: sizes of attributes, extents of layouts,
// alignments, workspaces, bias types.
#include "tests/emulator/cublaslt_emulated.h"

#include <cmath>
#include <cstring>
#include <cublasLt.h>

#include "kernels/base/bfloat16.h"
#include "tests/emulator/emulated_queue.h"

extern "C" {
EmulatedCublasLt emulated_cublaslt;
}

struct cublasLtContext {
  int number = 17;
};

namespace {

constexpr uint64_t kWorkspaceBytes = 4096;  // needed by long sums

struct Operation {
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_leading = 0;

  bool biased() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool gelu() const { return (epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
};
struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;

  bool operator==(const Layout&) const = default;
};
struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK, alignment[4] = {256, 256, 256, 256};
};
// The contents of a cublasLtMatmulAlgo_t: enough to recognise the product for which it was chosen.
struct Packed {
  uint32_t magic, rows, columns, depth, epilogue;
  uint16_t alignment[4];
  uint64_t workspace_bytes;
};
static_assert(sizeof(Packed) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint32_t kMagic = 0xa190;

template <class To, class From>
To* As(From* opaque) {
  return reinterpret_cast<To*>(opaque);
}

template <class T>
cublasStatus_t Take(T& value, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool Divides(uint64_t alignment, const void* data) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

float Load(const void* data, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return tandem::ToFloat(static_cast<const tandem::BFloat16*>(data)[i]);
}
void Store(void* data, cudaDataType type, int64_t i, float value) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = value;
  else
    static_cast<tandem::BFloat16*>(data)[i] = tandem::ToBFloat16(value);
}

// True if the extents of the layouts fit a product. Sets `depth`, the length of the inner dim.
bool Fits(const Operation& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
          uint64_t* depth) {
  const bool ta = op.transpose_a == CUBLAS_OP_T, tb = op.transpose_b == CUBLAS_OP_T;
  *depth = ta ? a.rows : a.columns;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.columns : b.rows) == *depth &&
         (tb ? b.rows : b.columns) == d.columns && c == d;
}

bool TypesFit(const Layout& a, const Layout& b, const Layout& d) {
  return a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F);
}

// Checks vectors of d's type and the auxiliary matrix of d's extents. Both begin on 16 bytes, the
// matrix in every column.
cublasStatus_t CheckEpilogue(const Operation& op, const Layout& a, const Layout& d) {
  switch (op.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (op.biased() && (op.bias == nullptr || !Divides(16, op.bias) || emulated_cublaslt.has_no_bias))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!op.gelu()) return CUBLAS_STATUS_SUCCESS;
  const bool leads = op.aux_leading % 8 == 0 && op.aux_leading >= static_cast<int64_t>(d.rows);
  if (op.aux == nullptr || !leads) return CUBLAS_STATUS_INVALID_VALUE;
  const bool supported = a.type == CUDA_R_16BF && d.type == CUDA_R_16BF && Divides(16, op.aux) &&
                         !emulated_cublaslt.has_no_gelu;
  return supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
float Gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

// d = scale a b + keep c + bias, in host memory. With GELU that value goes to aux, and d gets its
// activation.
struct Product {
  const void *a_data, *b_data, *c_data;
  void* d_data;
  Operation op;
  Layout a, b, c, d;
  int64_t depth;
  float scale, keep;
  void* workspace;
  uint64_t workspace_bytes;

  void Run() const {
    if (workspace_bytes > 0) std::memset(workspace, 0x5a, workspace_bytes);
    const bool ta = op.transpose_a == CUBLAS_OP_T, tb = op.transpose_b == CUBLAS_OP_T;
    const int64_t a_row = ta ? a.leading : 1, a_depth = ta ? 1 : a.leading;
    const int64_t b_depth = tb ? b.leading : 1, b_column = tb ? 1 : b.leading;
    for (int64_t j = 0; j < static_cast<int64_t>(d.columns); ++j) {
      for (int64_t i = 0; i < static_cast<int64_t>(d.rows); ++i) {
        float sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += Load(a_data, a.type, i * a_row + k * a_depth) *
                 Load(b_data, b.type, k * b_depth + j * b_column);
        }
        sum *= scale;
        if (keep != 0) sum += keep * Load(c_data, c.type, i + j * c.leading);
        if (op.biased()) sum += Load(op.bias, d.type, i);  // biases have the type of d
        if (op.gelu()) {
          Store(op.aux, d.type, i + j * op.aux_leading, sum);
          sum = Gelu(sum);
        }
        Store(d_data, d.type, i + j * d.leading, sum);
      }
    }
  }
};

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                               : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  ++emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
  delete As<Operation>(made);
  --emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Operation& op = *As<Operation>(made);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(op.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(op.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(op.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(op.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Take(op.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Take(op.aux_leading, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  if (rows == 0 || columns == 0 || leading < static_cast<int64_t>(rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading});
  ++emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
  delete As<Layout>(made);
  --emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  ++emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) {
  delete As<Preference>(made);
  --emulated_cublaslt.live_descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& preference = *As<Preference>(made);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Take(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Take(preference.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Take(preference.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Take(preference.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(preference.alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a_layout,
    cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,
    cublasLtMatrixLayout_t d_layout, cublasLtMatmulPreference_t wanted, int most,
    cublasLtMatmulHeuristicResult_t* results, int* count) {
  ++emulated_cublaslt.num_choices;
  *count = 0;
  const Operation& op = *As<Operation>(operation);
  const Layout &a = *As<Layout>(a_layout), &b = *As<Layout>(b_layout), &c = *As<Layout>(c_layout),
               &d = *As<Layout>(d_layout);
  const Preference& preference = *As<Preference>(wanted);
  uint64_t depth = 0;
  if (handle == nullptr || handle->number != 17 || most < 1 || !Fits(op, a, b, c, d, &depth))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!TypesFit(a, b, d) || emulated_cublaslt.has_no_algorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t allowed = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if ((preference.reductions & ~allowed) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasStatus_t epilogue = CheckEpilogue(op, a, d);
  if (epilogue != CUBLAS_STATUS_SUCCESS) return epilogue;
  const uint64_t workspace = depth > 1000 ? kWorkspaceBytes : 0;
  if (workspace > preference.workspace_bytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  Packed packed{kMagic,
                static_cast<uint32_t>(d.rows),
                static_cast<uint32_t>(d.columns),
                static_cast<uint32_t>(depth),
                op.epilogue,
                {},
                workspace};
  for (int i = 0; i < 4; ++i) packed.alignment[i] = static_cast<uint16_t>(preference.alignment[i]);
  results[0] = {};
  std::memcpy(&results[0].algo, &packed, sizeof(packed));
  results[0].workspaceSize = workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a_layout, const void* b_data,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c_data,
                              cublasLtMatrixLayout_t c_layout, void* d_data,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  ++emulated_cublaslt.num_products;
  const Operation& op = *As<Operation>(operation);
  const Layout &a = *As<Layout>(a_layout), &b = *As<Layout>(b_layout), &c = *As<Layout>(c_layout),
               &d = *As<Layout>(d_layout);
  uint64_t depth = 0;
  Packed packed;
  std::memcpy(&packed, algorithm, sizeof(packed));
  if (handle->number != 17 || !Fits(op, a, b, c, d, &depth) || packed.magic != kMagic ||
      packed.rows != d.rows || packed.columns != d.columns || packed.depth != depth ||
      packed.epilogue != op.epilogue || !TypesFit(a, b, d) ||
      CheckEpilogue(op, a, d) != CUBLAS_STATUS_SUCCESS) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const void* const places[4] = {a_data, b_data, c_data, d_data};
  for (int i = 0; i < 4; ++i) {
    if (places[i] == nullptr || !Divides(packed.alignment[i], places[i]))
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (packed.workspace_bytes > 0) {
    const bool enough = workspace != nullptr && workspace_bytes >= packed.workspace_bytes;
    if (!enough || !Divides(256, workspace)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  emulated_cublaslt.num_gelus += op.gelu() ? 1 : 0;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  if (keep != 0 && c_data != d_data) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{a_data,    b_data,
                        c_data,    d_data,
                        op,        a,
                        b,         c,
                        d,         static_cast<int64_t>(depth),
                        scale,     keep,
                        workspace, packed.workspace_bytes};
  reinterpret_cast<EmulatedQueue*>(stream)->Give([product] { product.Run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
