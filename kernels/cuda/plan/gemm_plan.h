// Translates the row-major product of kernels/gemm.h to cuBLASLt, which is column-major. A
// row-major array [R, C] is a column-major matrix of C rows and R columns; its columns begin C
// elements apart. So c = op(a) op(b) becomes c' = op(b)' op(a)': b comes first, both keep their
// flags, and a bias of c's columns is a bias of the result's rows. Plain functions, so that a CPU
// tests what a GPU runs.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm.h"

namespace tandem::kernels::cuda {

struct ColumnMajor {
  void* data;
  DType dtype;
  int64_t rows, columns;
  int64_t leading;  // elements from one column to the next
};

// result = op(first) op(second), plus the old result if `accumulate`, plus bias[i] in row i unless
// `bias` is null. The bias has the result's type. If `before_gelu` is set, it has the result's
// layout and receives these sums; the result receives their GELU.
struct GemmPlan {
  ColumnMajor first, second, result;
  bool transpose_first, transpose_second;
  int64_t depth;  // the dim that is summed over
  bool accumulate;
  const void* bias;
  void* before_gelu = nullptr;
};

// The largest power of two, up to 16, that divides an address. No access is wider than 16 bytes,
// and larger alignments must not affect the choice of an algorithm: they depend on where memory
// happens to lie.
inline int AlignmentOf(const void* data) {
  constexpr uintptr_t kWidest = 16;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(data) | kWidest;
  return static_cast<int>(bits & -bits);
}

// True if the product itself may add the bias. The bias must have the result's type, the only one
// that the library supports, and must be aligned for vectors. The library has refused this epilogue
// for products of single rows or columns.
inline bool TakesBias(const GemmArgs& args) {
  return !args.bias.empty() && args.bias.dtype == args.c.dtype &&
         AlignmentOf(args.bias.data) == 16 && args.b.shape[0] > 1 && args.b.shape[1] > 1;
}

inline ColumnMajor AsColumnMajor(const ArrayView& x) {
  return {x.data, x.dtype, x.shape[1], x.shape[0], std::max<int64_t>(1, x.shape[1])};
}

// The plan includes the bias if TakesBias.
inline GemmPlan PlanGemm(const GemmArgs& args) {
  return {.first = AsColumnMajor(args.b),
          .second = AsColumnMajor(args.a),
          .result = AsColumnMajor(args.c),
          .transpose_first = args.transpose_b,
          .transpose_second = args.transpose_a,
          .depth = args.a.shape[args.transpose_a ? 0 : 1],
          .accumulate = args.accumulate,
          .bias = TakesBias(args) ? args.bias.data : nullptr};
}

// True if the product itself may also store its activation. The library's GELU is the tanh version.
// It stores its argument only if every column is aligned for vectors, and adds a bias under
// TakesBias.
inline bool TakesActivation(const GemmArgs& args, Activation activation) {
  const bool whole_vectors = args.c.shape[1] % 8 == 0 && AlignmentOf(args.c.data) == 16;
  return activation == Activation::GELU_TANH && args.c.dtype == DType::BF16 && whole_vectors &&
         args.b.shape[0] > 1 && args.b.shape[1] > 1 && (args.bias.empty() || TakesBias(args));
}

// REQUIRES: TakesActivation.
inline GemmPlan PlanGemmActivate(const GemmArgs& args, const ArrayView& activated) {
  GemmPlan plan = PlanGemm(args);
  plan.result = AsColumnMajor(activated);
  plan.before_gelu = args.c.data;
  return plan;
}

}  // namespace tandem::kernels::cuda
